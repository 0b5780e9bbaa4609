#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/tracing/trace_tuning.h"
#include "tracing/span.h"

namespace tandem {

// The URL that spans are posted to; empty where neither a flag nor the environment names one. The
// flag counts before OTEL_EXPORTER_OTLP_TRACES_ENDPOINT, and that before
// OTEL_EXPORTER_OTLP_ENDPOINT, which is a base that "/v1/traces" is appended to. INVALID_ARGUMENT
// names what is no such URL.
absl::StatusOr<std::string> TraceUrl(const TraceTuning& tuning);

// The headers that go with each post, as lines "Name: value": those that OTEL_EXPORTER_OTLP_HEADERS
// and OTEL_EXPORTER_OTLP_TRACES_HEADERS list, of which the latter count before the former.
// INVALID_ARGUMENT names what is no header of HTTP, without its value, which is most often a
// secret.
absl::StatusOr<std::vector<std::string>> TraceHeaders(const TraceEnvironment& environment);

// Scheme and host of a URL that TraceUrl returned, for logs: its path or query may hold a secret.
std::string HostOfUrl(const std::string& url);

// The attributes of the process from OTEL_SERVICE_NAME and OTEL_RESOURCE_ATTRIBUTES. They include
// service.name, which is `default_service` unless the variables set it. INVALID_ARGUMENT where
// OTEL_RESOURCE_ATTRIBUTES is no list of key=value.
absl::StatusOr<SpanAttributes> ResourceAttributes(const TraceEnvironment& environment,
                                                  const std::string& default_service);

}  // namespace tandem
