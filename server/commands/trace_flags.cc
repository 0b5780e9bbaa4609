#include "server/commands/trace_flags.h"

#include <cstdlib>
#include <string>

#include "CLI/CLI.hpp"
#include "server/commands/size_flag.h"

namespace tandem {
namespace {

constexpr char kTraceGroup[] = "Tracing (docs/tracing.md)";

std::string Variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr ? "" : value;
}

}  // namespace

void AddTraceFlags(CLI::App& app, TraceTuning& tuning) {
  app.add_option(
         "--trace-endpoint", tuning.endpoint,
         "send spans of requests to this collector (OTLP/HTTP), as http://host:4318; default: "
         "what OTEL_EXPORTER_OTLP_TRACES_ENDPOINT or OTEL_EXPORTER_OTLP_ENDPOINT says")
      ->group(kTraceGroup);
  app.add_option(
         "--trace-file-bytes", tuning.file_bytes,
         "the file of --trace-file is begun anew beyond this size, as 256MiB; one older file "
         "is kept")
      ->transform(SizeFlag(Kilo::k1024))
      ->capture_default_str()
      ->group(kTraceGroup);
  app.add_option("--trace-sample", tuning.sample,
                 "share of the requests that are traced, among those whose client does not say; "
                 "default: 1 where spans go somewhere, else 0")
      ->check(CLI::Range(0.0, 1.0))
      ->group(kTraceGroup);
}

void AddTraceFileFlag(CLI::App& app, TraceTuning& tuning) {
  app.add_option(
         "--trace-file", tuning.file,
         "write spans to this file instead, one request of OTLP as JSON per line; tandem up "
         "appends a dot and the name of each process")
      ->group(kTraceGroup);
}

TraceEnvironment ReadTraceEnvironment() {
  return {.endpoint = Variable("OTEL_EXPORTER_OTLP_ENDPOINT"),
          .traces_endpoint = Variable("OTEL_EXPORTER_OTLP_TRACES_ENDPOINT"),
          .headers = Variable("OTEL_EXPORTER_OTLP_HEADERS"),
          .traces_headers = Variable("OTEL_EXPORTER_OTLP_TRACES_HEADERS"),
          .service_name = Variable("OTEL_SERVICE_NAME"),
          .resource_attributes = Variable("OTEL_RESOURCE_ATTRIBUTES")};
}

}  // namespace tandem
