#include "server/tracing/process_tracing.h"

#include <unistd.h>

#include <utility>

#include "base/log.h"
#include "base/status.h"
#include "server/tracing/otlp_http_transport.h"
#include "server/tracing/trace_endpoint.h"
#include "server/tracing/trace_file_transport.h"

namespace tandem {
namespace {

// Opens the transport of spans. Null where neither a collector nor a file is named.
absl::StatusOr<std::unique_ptr<SpanTransport>> OpenTransport(const TraceTuning& tuning) {
  if (!tuning.file.empty()) {
    ASSIGN_OR_RETURN(std::unique_ptr<SpanTransport> file,
                     TraceFileTransport::Open(tuning.file, tuning.file_bytes));
    LogInfo("trace export file={}", tuning.file);
    return file;
  }
  ASSIGN_OR_RETURN(const std::string url, TraceUrl(tuning));
  if (url.empty()) return nullptr;
  LogInfo("trace export to={}", HostOfUrl(url));
  ASSIGN_OR_RETURN(std::vector<std::string> headers, TraceHeaders(tuning.environment));
  return std::make_unique<OtlpHttpTransport>(url, std::move(headers));
}

absl::StatusOr<TraceResource> ResourceOf(const TraceTuning& tuning, const TracedProcess& process) {
  TraceResource resource{.attributes = {}, .version = process.build};
  ASSIGN_OR_RETURN(resource.attributes,
                   ResourceAttributes(tuning.environment, "tandem-" + process.role));
  resource.attributes.push_back({"service.version", process.build});
  resource.attributes.push_back({"service.instance.id", process.name});
  resource.attributes.push_back({"process.pid", int64_t{getpid()}});
  return resource;
}

}  // namespace

absl::StatusOr<ProcessTracing> ProcessTracing::Open(const TraceTuning& tuning,
                                                    const TracedProcess& process) {
  ASSIGN_OR_RETURN(std::unique_ptr<SpanTransport> transport, OpenTransport(tuning));
  ProcessTracing tracing;
  if (transport == nullptr) return tracing;
  ASSIGN_OR_RETURN(TraceResource resource, ResourceOf(tuning, process));
  tracing.exporter_ = std::make_unique<SpanExporter>(SpanExporterOptions(), std::move(resource),
                                                     std::move(transport));
  tracing.tracer_ = std::make_unique<Tracer>(tuning.sample.value_or(1), tracing.exporter_.get());
  return tracing;
}

std::optional<SpanExportUse> ProcessTracing::use() const {
  if (exporter_ == nullptr) return std::nullopt;
  return exporter_->use();
}

void ProcessTracing::Shutdown(TimePoint deadline) {
  if (exporter_ != nullptr) exporter_->Shutdown(deadline);
}

}  // namespace tandem
