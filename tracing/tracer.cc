#include "tracing/tracer.h"

#include <cstdint>

namespace tandem {
namespace {

// Decided by the id, as OpenTelemetry does, so that systems with the same ratio choose the same
// traces.
bool IsChosen(TraceId id, double ratio) {
  constexpr double kIds = 9223372036854775808.0;  // 2^63
  return ratio >= 1 || static_cast<double>(id.low >> 1) < ratio * kIds;
}

}  // namespace

std::shared_ptr<RequestTrace> Tracer::Begin(const std::optional<TraceContext>& caller) const {
  if (caller) {
    return std::make_shared<RequestTrace>(*caller, caller->sampled ? consumer_ : nullptr);
  }
  if (consumer_ == nullptr || ratio_ <= 0) return nullptr;
  const TraceId id = NewTraceId();
  if (!IsChosen(id, ratio_)) return nullptr;
  return std::make_shared<RequestTrace>(TraceContext{.trace_id = id, .sampled = true}, consumer_);
}

}  // namespace tandem
