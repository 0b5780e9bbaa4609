#pragma once

#include <cstdint>

namespace tandem {

struct SchedulerStats {
  // Sequences in each phase now.
  int32_t waiting = 0;
  int32_t prefilling = 0;
  int32_t running = 0;
  int32_t parked = 0;
  int32_t swapped = 0;  // on the host, or being copied there or back
  // Tokens that waiting and prefilling sequences still have to compute.
  int64_t waiting_prompt_tokens = 0;
  // For all running sequences together: the tokens that their next decodes read, and the decodes that they
  // are expected to need until they end.
  int64_t decode_context_tokens = 0;
  int64_t expected_decode_tokens = 0;
  // Preemptions since the start, by what becomes of the KV.
  uint64_t preempted_recompute = 0;
  uint64_t preempted_swap = 0;
};

}  // namespace tandem
