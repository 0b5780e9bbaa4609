#pragma once

#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "scheduler/non_negative_fit.h"

namespace tandem {

// What one step computed, in the terms of the cost model (docs/architecture.md).
struct StepFeatures {
  int32_t prefill_tokens = 0;  // N: new tokens of prefill chunks
  int64_t prefill_pairs = 0;   // A: causal (query, key) pairs of these, the cached context included
  int32_t decode_sequences = 0;  // B
  int64_t decode_context = 0;    // C: tokens of context that the decodes read
};

// How long steps and copies take on this machine, learned from those that ran: nothing is assumed
// before it was measured. A step takes a0 + a1 N + a2 A + b1 B + b2 C, a copy t0 + t1 blocks, no
// coefficient below 0, fitted on relative error with a memory of some hundred observations; a step
// that was held up by something else hardly counts. Pure: time comes in as durations.
// Thread: one at a time.
class LatencyModel {
 public:
  void ObserveStep(const StepFeatures& features, Duration took);
  // `blocks` KV blocks were copied between device and host, in either direction.
  void ObserveCopy(int32_t blocks, Duration took);

  // The time that computing tokens [begin, end) of one sequence adds. Nothing before enough steps
  // with prefills were seen.
  std::optional<Duration> Prefill(int32_t begin, int32_t end) const;
  // Nothing before a copy was seen.
  std::optional<Duration> Copy(int32_t blocks) const;
  // A whole step. Nothing before one was seen.
  std::optional<Duration> Step(const StepFeatures& features) const;

 private:
  static constexpr double kForgetting = 0.998;

  NonNegativeFit<5> steps_{kForgetting};
  NonNegativeFit<2> copies_{kForgetting};
  int64_t prefill_steps_ = 0;
};

}  // namespace tandem
