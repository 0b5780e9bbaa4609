#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/ids.h"

namespace tandem {

// Where a sequence stands. Positions lie on one axis: computed <= prompt <= max_total.
//   waiting    -> prefilling          admitted: its blocks are promised
//   prefilling -> running             its last prefill chunk was computed
//   parked                            holds blocks but is not run: KV on its way in or out
//   parked     -> running             all of its KV has arrived
enum class Phase : uint8_t { kWaiting, kPrefilling, kRunning, kParked };

// What the scheduler is told of a sequence. It sees counts, never a block or a token.
struct SequenceSpec {
  SequenceId id;
  int32_t prompt_tokens = 0;
  int32_t max_total_tokens = 0;  // prompt and all output that it may grow to
  int32_t priority = 0;          // higher goes first
  TimePoint deadline = kNoDeadline;
};

struct SequenceState {
  SequenceSpec spec;
  Phase phase = Phase::kWaiting;
  int32_t computed_tokens = 0;  // prompt tokens whose KV exists
  uint64_t arrival = 0;         // order of arrival: first come, first served within a priority
};

}  // namespace tandem
