#pragma once

#include <cstdint>
#include <optional>
#include <string>

namespace tandem {

// The environment variables of OpenTelemetry that are read; empty where one is not set.
struct TraceEnvironment {
  std::string endpoint;             // OTEL_EXPORTER_OTLP_ENDPOINT
  std::string traces_endpoint;      // OTEL_EXPORTER_OTLP_TRACES_ENDPOINT
  std::string headers;              // OTEL_EXPORTER_OTLP_HEADERS
  std::string traces_headers;       // OTEL_EXPORTER_OTLP_TRACES_HEADERS
  std::string service_name;         // OTEL_SERVICE_NAME
  std::string resource_attributes;  // OTEL_RESOURCE_ATTRIBUTES
};

// Where spans of a process go and of which requests they are made, by `tandem router`, `tandem
// worker` and `tandem up`.
struct TraceTuning {
  std::string endpoint;  // URL of a collector; empty: that of the environment
  std::string file;      // spans go to this file instead of a collector
  uint64_t file_bytes = uint64_t{256} << 20;
  std::optional<double> sample;  // nothing: all requests, if spans are exported
  TraceEnvironment environment;
};

}  // namespace tandem
