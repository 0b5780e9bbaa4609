#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "tracing/trace_context.h"

namespace tandem {

// The numbers are OTLP's.
enum class SpanKind : uint8_t { kInternal = 1, kServer = 2, kClient = 3 };

struct SpanAttribute {
  using Value = std::variant<std::string, int64_t, double, bool, std::vector<std::string>>;
  std::string key;
  Value value;
};
using SpanAttributes = std::vector<SpanAttribute>;

struct SpanEvent {
  std::string name;
  TimePoint at;
};

// One operation of a request, in the terms of OpenTelemetry. Never holds text of a prompt or an
// answer.
struct Span {
  TraceId trace_id;
  SpanId id = 0;
  SpanId parent = 0;  // 0: none
  std::string tracestate;
  std::string name;
  SpanKind kind = SpanKind::kInternal;
  TimePoint start;
  TimePoint end;  // not before `start`
  SpanAttributes attributes;
  std::vector<SpanEvent> events;
  absl::Status status;  // OK: the operation did not fail
};

// Takes the spans of requests that have ended.
class SpanConsumer {
 public:
  virtual ~SpanConsumer() = default;
  // Spans of one request, on any thread. Never blocks; what there is no room for is dropped.
  virtual void Take(std::vector<Span> spans) = 0;
};

}  // namespace tandem
