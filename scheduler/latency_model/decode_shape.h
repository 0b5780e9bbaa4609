#pragma once

#include <cstddef>
#include <deque>
#include <optional>

#include "scheduler/latency_model/component_fit.h"
#include "scheduler/latency_model/non_negative_fit.h"
#include "scheduler/latency_model/step_model.h"

namespace tandem {

// How the cost of decode steps depends on the batch size and on the context, learned while the
// worker serves. A profile is measured on steps that send no tokens to clients; in service each
// sequence of a step also costs the time to deliver its token, so that no single factor corrects
// the profile for small and large batches alike. So b0, b1 and b2 are fitted to the steps that ran.
// Only their proportions are learned here, and not the total time of the steps. Pure.
// Thread: one at a time.
class DecodeShape {
 public:
  // Starts from the coefficients of `given`, which stay where no steps were seen.
  explicit DecodeShape(const StepModel& given);

  // Records a step of decodes alone.
  void Observe(const TimedStep& step);
  // Rescales all recorded steps as if each had taken `by` times as long.
  void Slow(double by);

  // Costs that predict the same total time for the latest steps as `model`, and are clearly closer
  // to the single steps; nothing where there are none. All remembered steps are compared, so it
  // searches only when enough steps are new since the last search.
  std::optional<DecodeCost> Better(const StepModel& model);

 private:
  static constexpr double kForgetting = 0.999;

  NonNegativeFit<3>::Vector Terms(const StepFeatures& features) const;
  DecodeCost Fitted(double scale) const;
  double TotalMs(const StepModel& model) const;
  double ErrorOf(const StepModel& model, double total_ms) const;

  // The coefficients of the given model: a fit scales b0 of all buckets alike and keeps their
  // proportions.
  DecodeCost given_;
  NonNegativeFit<3> fit_{kForgetting};
  std::deque<TimedStep> latest_;
  size_t new_steps_ = 0;  // number of steps observed since the latest comparison
};

}  // namespace tandem
