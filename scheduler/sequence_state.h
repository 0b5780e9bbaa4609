#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/ids.h"

namespace tandem {

// The phase of a sequence. Positions lie on one axis: computed < known <= max_total + 1, where
// `known` tokens exist and the pool holds the KV of the first `computed` of them.
//   waiting             -> prefilling    admitted: its cached prefix is attached, and blocks for
//                                        its first chunk are free
//   prefilling          -> running       all known tokens were computed, the next one is sampled
//   running             -> parked        its KV is being transferred: it holds blocks, is not run
//   parked              -> running       all of its KV has arrived
//   parked              -> prefilling    the KV of its prompt has arrived, and more tokens than
//                                        those of the prompt are known already
//   prefilling, running -> waiting       preempted: it frees its blocks and is computed again later
//   running             -> swapping out  preempted: its KV is copied to the host
//   swapping out        -> swapped       the copy is complete and its blocks are free
//   swapped             -> swapping in   blocks are free for it again
//   swapping in         -> running       its KV is back in the pool
// In phase running, computed == known - 1: a decode step computes the last known token.
enum class Phase : uint8_t {
  kWaiting,
  kPrefilling,
  kRunning,
  kParked,
  kSwappingOut,
  kSwapped,
  kSwappingIn,
};

// What the scheduler is told of a sequence. It sees counts, never a block or a token.
struct SequenceSpec {
  SequenceId id;
  int32_t prompt_tokens = 0;
  int32_t said_tokens = 0;       // known at first, besides the prompt: said before it came here
  int32_t max_total_tokens = 0;  // tokens whose KV it may come to hold, prompt and output
  // Rows of one decode step: the beams it keeps, or the choices that it will fork into.
  int32_t width = 1;
  int32_t priority = 0;  // higher goes first
  TimePoint deadline = kNoDeadline;
  uint64_t tenant = 0;  // whose it is: fair shares are per tenant
};

struct SequenceState {
  SequenceSpec spec;
  Phase phase = Phase::kWaiting;
  int32_t computed_tokens = 0;
  int32_t known_tokens = 0;
  uint64_t order = 0;    // of arrival; kept through preemption
  TimePoint enqueued{};  // when it arrived
  int32_t preemptions = 0;

  TimePoint waits_since{};       // in phase waiting: since when
  Duration waited{};             // in that phase before
  bool aged = false;             // waited too long: goes before all that did not, until its end
  bool restore_asked = false;    // since it last ran: asked for once, then computed
  int32_t shared_tokens = 0;     // attached from the cache, or shared with what it forked from
  int32_t skips = 0;             // how often it was overtaken at the head, for want of room
  int32_t returning_blocks = 0;  // in phase swapping out: what comes free when that is done
};

inline constexpr int kNumPhases = 7;

// First come, first served. Sequences forked from one share its order.
inline bool ArrivedBefore(const SequenceState& a, const SequenceState& b) {
  return a.order != b.order ? a.order < b.order : a.spec.id < b.spec.id;
}

}  // namespace tandem
