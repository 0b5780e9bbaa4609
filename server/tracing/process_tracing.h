#pragma once

#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "server/tracing/trace_tuning.h"
#include "tracing/span_exporter.h"
#include "tracing/tracer.h"

namespace tandem {

// What receivers of spans see of the process that sends them.
struct TracedProcess {
  std::string role;  // "router", "prefill", ...
  std::string name;
  std::string build;  // version of this binary
};

// The tracing of one process. Movable.
class ProcessTracing {
 public:
  // Begins to export, where the tuning names a collector or a file. INVALID_ARGUMENT names what is
  // wrong.
  static absl::StatusOr<ProcessTracing> Open(const TraceTuning& tuning,
                                             const TracedProcess& process);
  // Tracing without an exporter: passes trace contexts on, but makes no spans.
  ProcessTracing() : tracer_(std::make_unique<Tracer>(0, nullptr)) {}

  const Tracer& tracer() const { return *tracer_; }
  // Counts of exported spans; nothing where there is no exporter. Thread-safe.
  std::optional<SpanExportUse> use() const;
  // Exports the queued spans until `deadline`. Spans of requests that end later are lost.
  void Shutdown(TimePoint deadline);

 private:
  std::unique_ptr<SpanExporter> exporter_;  // null where spans go nowhere
  std::unique_ptr<Tracer> tracer_;
};

}  // namespace tandem
