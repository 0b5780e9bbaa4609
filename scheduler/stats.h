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
  // The tokens that the next decodes of all running sequences read together, and the decodes that
  // these sequences are expected to need until they end.
  int64_t decode_context_tokens = 0;
  int64_t expected_decode_tokens = 0;
  // The number of preemptions since the start: sequences that are computed again, and sequences
  // whose KV is copied to the host.
  uint64_t preempted_recompute = 0;
  uint64_t preempted_swap = 0;
};

}  // namespace tandem
