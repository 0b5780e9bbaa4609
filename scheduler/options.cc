#include "scheduler/options.h"

#include "base/status.h"

namespace tandem {

absl::Status SchedulerOptions::Validate() const {
  const auto at_least = [](const char* field, int32_t value, int32_t min) {
    if (value >= min) return absl::OkStatus();
    return InvalidArgument("scheduler: {}={}: must be at least {}", field, value, min);
  };
  RETURN_IF_ERROR(at_least("max_step_tokens", max_step_tokens, 1));
  RETURN_IF_ERROR(at_least("max_prefill_chunk", max_prefill_chunk, 0));
  RETURN_IF_ERROR(at_least("max_sequences", max_sequences, 1));
  RETURN_IF_ERROR(at_least("max_waiting", max_waiting, 1));
  RETURN_IF_ERROR(at_least("total_blocks", total_blocks, 1));
  RETURN_IF_ERROR(at_least("block_tokens", block_tokens, 1));
  RETURN_IF_ERROR(at_least("max_skips", max_skips, 0));
  if (max_wait > Duration::zero() && max_wait <= std::chrono::hours(24 * 365)) {
    return absl::OkStatus();
  }
  return InvalidArgument("scheduler: max_wait={} ms: must be above 0 and at most a year",
                         ToMilliseconds(max_wait));
}

}  // namespace tandem
