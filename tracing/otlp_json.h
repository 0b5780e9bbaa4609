#pragma once

#include <span>
#include <string>
#include <vector>

#include "base/clock.h"
#include "tracing/span.h"

namespace tandem {

// The spans of one request, and how far the clock of the day is ahead of the monotonic clock.
struct EndedTrace {
  std::vector<Span> spans;
  Duration unix_offset{};  // add it to a TimePoint for the time since 1970
};

// What all spans of a process have in common.
struct TraceResource {
  SpanAttributes attributes;  // service.name among them
  std::string version;        // of this build
};

// An ExportTraceServiceRequest in OTLP's JSON encoding
// (https://opentelemetry.io/docs/specs/otlp/#json-protobuf-encoding): ids in hexadecimal, 64-bit
// integers as strings, enums as numbers. One line; bytes that are no UTF-8 are replaced.
std::string ToOtlpJson(const TraceResource& resource, std::span<const EndedTrace> traces);

}  // namespace tandem
