#pragma once

#include <cstdint>

#include "base/clock.h"
#include "base/ids.h"

namespace tandem {

// The phase of a sequence, and what moves it from one phase to the next:
//
//   from          to            when
//   waiting       prefilling    It is admitted: its cached prefix is attached, and blocks for its
//                               first chunk are free.
//   prefilling    running       All known tokens are computed, and the next one is sampled.
//   running       parked        Its KV is sent to another worker: it keeps its blocks and does not
//                               run.
//   parked        running       All of its KV has arrived.
//   parked        prefilling    The KV of its prompt has arrived, and tokens behind the prompt are
//                               known that have to be computed.
//   prefilling,   waiting       It is preempted: its blocks are freed, and it is computed again
//   running                     later.
//   running       swapping out  It is preempted: its KV is copied to the host.
//   swapping out  swapped       The copy is complete, and its blocks are free.
//   swapped       swapping in   Blocks are free for it again.
//   swapping in   running       Its KV is back in the pool.
//
// A swap that fails at any point leads back to waiting.
//
// Tokens lie on one axis: computed < known <= max_total + 1, where `known` tokens exist and the pool
// holds the KV of the first `computed` of them. In phase running, computed == known - 1: a decode
// step computes the last known token. Tokens whose KV was evicted are no part of this axis: evicted
// tokens of the prompt shorten the prompt and everything behind it, evicted output shortens what is
// behind the prompt. A sequence that is computed again gets them back.
enum class Phase : uint8_t {
  kWaiting,
  kPrefilling,
  kRunning,
  kParked,
  kSwappingOut,
  kSwapped,
  kSwappingIn,
};

inline constexpr int kNumPhases = 7;

// The part of a sequence whose tokens give up their KV.
enum class TokensOf : uint8_t { kPrompt, kOutput };

// What the engine tells the scheduler of a sequence: counts, never a block or a token.
struct SequenceSpec {
  SequenceId id;
  int32_t prompt_tokens = 0;
  // Output tokens that are known at the start, because another worker emitted them.
  int32_t emitted_tokens = 0;
  int32_t max_total_tokens = 0;  // the most tokens whose KV it may hold, prompt and output
  int32_t evicted_tokens = 0;    // evicted from the prompt; the other counts are without them
  // The most tokens whose KV stays when KV is evicted at the end of the prompt, among them output
  // that is computed again. They are copied into blocks of their own, which the sequence holds from
  // its admission on. 0: nothing will be evicted.
  int32_t kept_tokens = 0;
  // The share of its output's tokens whose KV stays: less than 1 where KV is evicted while
  // decoding. Forecasts count on it; the limits above do not, because all output may be computed
  // again.
  double output_share = 1;
  // The rows of the sequence in one decode step: its beams, or the choices that it will fork into.
  int32_t width = 1;
  int32_t priority = 0;  // a higher one goes first
  TimePoint deadline = kNoDeadline;
  uint64_t tenant = 0;  // fair shares are per tenant
};

struct SequenceState {
  SequenceSpec spec;
  Phase phase = Phase::kWaiting;
  int32_t computed_tokens = 0;
  int32_t known_tokens = 0;
  int32_t evicted_output = 0;  // tokens not in computed, known and max_total_tokens
  uint64_t order = 0;          // rank of its arrival; a preemption does not change it

  TimePoint waits_since{};  // start of the present phase waiting
  Duration waited{};        // time spent in phase waiting before waits_since
  bool aged = false;        // whether it waited too long, so that it ranks above all that did not
  bool restore_requested = false;  // requested since it last ran; once is enough
  int32_t shared_tokens = 0;  // tokens from the prefix cache, or from the sequence it forked from
  int32_t skips = 0;          // how often others overtook it while it was first without room
  int32_t returning_blocks = 0;  // in phase swapping out: blocks that the end of the copy frees

  // The output tokens of one row that are known, and the most it may ever have beside the last one.
  int32_t num_output() const { return known_tokens - spec.prompt_tokens + evicted_output; }
  int32_t most_output() const {
    return spec.max_total_tokens - spec.prompt_tokens + evicted_output;
  }
};

// Whether `a` comes before `b` in the order of arrival. Sequences that forked from one sequence
// have the same arrival, and the lower id comes first.
inline bool ArrivedBefore(const SequenceState& a, const SequenceState& b) {
  return a.order != b.order ? a.order < b.order : a.spec.id < b.spec.id;
}

}  // namespace tandem
