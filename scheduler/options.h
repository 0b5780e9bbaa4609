#pragma once

#include <chrono>
#include <cstdint>

#include "absl/status/status.h"
#include "base/clock.h"
#include "scheduler/policy.h"

namespace tandem {

struct SchedulerOptions {
  int32_t max_step_tokens = 512;  // token budget of one step, decodes and prefill chunks together
  int32_t max_prefill_chunk = 0;  // of one sequence in one step; 0: no limit
  int32_t max_sequences = 64;     // sum of the widths of all admitted sequences
  int32_t max_waiting = 1024;
  int32_t total_blocks = 0;
  int32_t block_tokens = 16;
  SchedulingPolicyKind policy = SchedulingPolicyKind::kFair;
  int32_t max_skips = 64;  // how often others may overtake the first sequence without room
  Duration max_wait = std::chrono::seconds(30);  // after this wait, a sequence precedes all others

  // INVALID_ARGUMENT names the field that is out of range and its value.
  absl::Status Validate() const;
};

}  // namespace tandem
