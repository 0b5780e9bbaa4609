#include "tracing/trace_context.h"

#include <sys/random.h>

#include <algorithm>
#include <array>
#include <vector>

#include "base/check.h"
#include "fmt/format.h"
#include "tracing/tracestate.h"

namespace tandem {
namespace {

constexpr size_t kTraceparentBytes = 55;  // of version 00: "00-" 32 "-" 16 "-" 2
constexpr uint8_t kSampledFlag = 1;

// The number that `digits` stand for: at most 16 of them, lower case as the specification demands.
std::optional<uint64_t> ParseHex(std::string_view digits) {
  uint64_t value = 0;
  for (const char digit : digits) {
    if (digit >= '0' && digit <= '9') {
      value = value << 4 | static_cast<uint64_t>(digit - '0');
    } else if (digit >= 'a' && digit <= 'f') {
      value = value << 4 | static_cast<uint64_t>(digit - 'a' + 10);
    } else {
      return std::nullopt;
    }
  }
  return value;
}

// A later version may append fields, which are not read, behind another dash.
bool HasRightLength(std::string_view text, uint64_t version) {
  if (text.size() == kTraceparentBytes) return true;
  return version > 0 && text.size() > kTraceparentBytes && text[kTraceparentBytes] == '-';
}

std::optional<TraceContext> ParseTraceparent(std::string_view text) {
  constexpr uint64_t kForbiddenVersion = 0xff;
  if (text.size() < kTraceparentBytes || text[2] != '-' || text[35] != '-' || text[52] != '-') {
    return std::nullopt;
  }
  const auto version = ParseHex(text.substr(0, 2));
  const auto high = ParseHex(text.substr(3, 16));
  const auto low = ParseHex(text.substr(19, 16));
  const auto parent = ParseHex(text.substr(36, 16));
  const auto flags = ParseHex(text.substr(53, 2));
  if (!version || !high || !low || !parent || !flags) return std::nullopt;
  if (*version == kForbiddenVersion || !HasRightLength(text, *version)) return std::nullopt;
  TraceContext context{.trace_id = {.high = *high, .low = *low},
                       .span_id = *parent,
                       .sampled = (*flags & kSampledFlag) != 0};
  if (!context.trace_id.valid() || context.span_id == 0) return std::nullopt;
  return context;
}

// Header values may have white space around them.
std::string_view Trimmed(std::string_view text) {
  const size_t first = text.find_first_not_of(" \t");
  if (first == std::string_view::npos) return "";
  return text.substr(first, text.find_last_not_of(" \t") - first + 1);
}

uint64_t RandomBits() {
  uint64_t bits = 0;
  // Up to 256 bytes come whole once the generator is seeded, which it is since the system started.
  TANDEM_CHECK(getrandom(&bits, sizeof(bits), 0) == sizeof(bits),
               "the system has no random numbers");
  return bits;
}

}  // namespace

std::optional<TraceContext> ParseTraceContext(std::span<const std::string_view> traceparents,
                                              std::span<const std::string_view> tracestates) {
  if (traceparents.size() != 1) return std::nullopt;
  std::optional<TraceContext> context = ParseTraceparent(Trimmed(traceparents.front()));
  if (context) context->tracestate = JoinTracestates(tracestates).value_or("");
  return context;
}

std::string ToTraceparent(const TraceContext& context) {
  return fmt::format("00-{}-{}-{:02x}", ToHex(context.trace_id), ToHex(context.span_id),
                     context.sampled ? kSampledFlag : 0);
}

std::string ToHex(TraceId id) { return fmt::format("{:016x}{:016x}", id.high, id.low); }

std::string ToHex(SpanId id) { return fmt::format("{:016x}", id); }

TraceId NewTraceId() { return {.high = RandomBits(), .low = NewSpanId()}; }

SpanId NewSpanId() {
  SpanId id = 0;
  while (id == 0) id = RandomBits();
  return id;
}

}  // namespace tandem
