#pragma once

#include <cstddef>
#include <deque>
#include <optional>

#include "scheduler/latency_model/component_fit.h"
#include "scheduler/latency_model/non_negative_fit.h"
#include "scheduler/latency_model/step_model.h"

namespace tandem {

// What decodes of several sequences or of long contexts take, compared with small ones, while the
// worker serves. A profile is measured on steps that send nothing to anybody; in service each
// sequence of a step costs the time to deliver its token besides, so that no single factor corrects
// the profile for small and large batches alike. So b0, b1 and b2 are fitted to the steps that ran.
// How long all of them take is not decided here. Pure. Thread: one at a time.
class DecodeShape {
 public:
  // Begins as `given` says, and believes it where no steps were seen.
  explicit DecodeShape(const StepModel& given);

  // A step of decodes alone.
  void Observe(const TimedStep& step);
  // All steps so far are taken to have needed `by` times as long.
  void Slow(double by);

  // Costs with which the latest steps take as long as with `model`, all of them together, and that
  // are clearly nearer to each of them; nothing where there are none. Every step that is remembered
  // is compared, so this looks for them only when enough steps are new since it last did.
  std::optional<DecodeCost> Better(const StepModel& model);

 private:
  static constexpr double kForgetting = 0.999;

  NonNegativeFit<3>::Vector Terms(const StepFeatures& features) const;
  DecodeCost Fitted(double scale) const;
  double TotalMs(const StepModel& model) const;
  double ErrorOf(const StepModel& model, double total_ms) const;

  // b0 of the buckets keep their proportions.
  DecodeCost given_;
  NonNegativeFit<3> fit_{kForgetting};
  std::deque<TimedStep> latest_;
  size_t new_steps_ = 0;  // since the latest comparison
};

}  // namespace tandem
