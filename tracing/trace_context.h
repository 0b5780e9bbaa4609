#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace tandem {

// The names of the two headers of W3C Trace Context, in HTTP and in gRPC's metadata.
inline constexpr char kTraceparentKey[] = "traceparent";
inline constexpr char kTracestateKey[] = "tracestate";

struct TraceId {
  uint64_t high = 0;
  uint64_t low = 0;

  bool valid() const { return high != 0 || low != 0; }
  bool operator==(const TraceId&) const = default;
};

// The id of a span; 0 is no span.
using SpanId = uint64_t;

// What a call says of the trace that it belongs to.
struct TraceContext {
  TraceId trace_id;
  SpanId span_id = 0;  // the parent of what the receiver does; 0: the trace begins at the receiver
  bool sampled = false;
  std::string tracestate = {};  // what other systems note of the trace; passed on as it came
};

// Reads the headers by W3C Trace Context, level 1 (https://www.w3.org/TR/trace-context/). Accepts
// any bytes. Nothing unless there is exactly one well-formed `traceparent`: the caller then begins
// a new trace. A tracestate that is malformed is dropped, without the traceparent. `tracestates`
// are the values of all headers of that name, in their order.
std::optional<TraceContext> ParseTraceContext(std::span<const std::string_view> traceparents,
                                              std::span<const std::string_view> tracestates);

// The value of `traceparent` for a call whose parent is context.span_id.
std::string ToTraceparent(const TraceContext& context);

std::string ToHex(TraceId id);  // 32 digits
std::string ToHex(SpanId id);   // 16 digits

// Random ids from the system's generator, never 0. Thread-safe.
TraceId NewTraceId();
SpanId NewSpanId();

}  // namespace tandem
