#pragma once

#include <chrono>
#include <cstdint>

#include "absl/status/status.h"
#include "base/clock.h"
#include "scheduler/policy.h"

namespace tandem {

struct SchedulerOptions {
  int32_t max_step_tokens = 512;  // budget of one step, decodes and prefill chunks together
  int32_t max_prefill_chunk = 0;  // tokens of one sequence in one step; 0: up to the budget
  int32_t max_sequences = 64;     // sum of the widths of all admitted sequences
  int32_t max_waiting = 1024;
  int32_t total_blocks = 0;
  int32_t block_tokens = 16;
  SchedulingPolicyKind policy = SchedulingPolicyKind::kFair;
  int32_t max_skips = 64;  // how often others may overtake the first sequence that has no room
  Duration max_wait = std::chrono::seconds(30);  // a sequence that waited longer goes first

  // INVALID_ARGUMENT that names the field and its value.
  absl::Status Validate() const;
};

}  // namespace tandem
