#pragma once

#include <cstdint>
#include <optional>

#include "base/clock.h"
#include "scheduler/latency_model/non_negative_fit.h"
#include "scheduler/latency_model/step_features.h"
#include "scheduler/latency_model/step_model.h"

namespace tandem {

// Learns how long steps and copies take on this machine from those that ran; nothing is assumed
// before it was measured. The learned StepModel has one base for prefills and decodes, and no
// floor, buckets or gamma table; a copy takes t0 + t1 * blocks. All coefficients are at least 0 and
// are fitted to the relative error with a memory of some hundred observations; a step that was
// delayed by other work hardly counts. Pure: time comes in as durations.
// Thread: one at a time.
class StepLearner {
 public:
  void ObserveStep(const StepFeatures& features, Duration took);
  // Records the time of copying `blocks` KV blocks between device and host, in either direction.
  void ObserveCopy(int32_t blocks, Duration took);

  // The time that computing tokens [begin, end) of one sequence adds to a step. Nothing before
  // enough steps with prefills were seen.
  std::optional<Duration> Prefill(int32_t begin, int32_t end) const;
  // The time of copying `blocks` KV blocks between device and host. Nothing before a copy was seen.
  std::optional<Duration> Copy(int32_t blocks) const;
  // The time of a whole step with these features. Nothing before a step was seen.
  std::optional<Duration> Step(const StepFeatures& features) const;
  // The step model that was learned. Nothing before a step was seen.
  std::optional<StepModel> steps() const;

 private:
  static constexpr double kForgetting = 0.998;

  NonNegativeFit<5> steps_{kForgetting};
  NonNegativeFit<2> copies_{kForgetting};
  int64_t prefill_steps_ = 0;
};

}  // namespace tandem
