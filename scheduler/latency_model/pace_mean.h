#pragma once

#include <cstddef>

namespace tandem {

// The factor by which steps take longer than a model predicts, on average over their time, so that
// it is the error of a sum of many steps. Later steps weigh more, the latest kMemory of them about
// as much as all before. A step counts as at most kMostOfUsual times its usual time, so that one
// that stalled has little influence.
class PaceMean {
 public:
  // Records a step that took `ms`, for which the model predicts `predicted_ms`; both are above 0.
  void Add(double ms, double predicted_ms);

  // Measured time / predicted time; 1 before the first step.
  double factor() const;
  // The standard error of the factor, relative to the factor.
  double error() const;
  size_t steps() const { return steps_; }

  // Rescales all recorded steps as if each had taken `by` times as long.
  void Slow(double by) { ms_ *= by; }
  // Adapts to a new model, which predicts `by` times as long for the recorded steps as the one
  // before.
  void Rescale(double by) { predicted_ms_ *= by; }

 private:
  static constexpr double kMemory = 256;
  static constexpr double kMostOfUsual = 3;
  // The number of steps before the usual time of a step is known.
  static constexpr size_t kFew = 8;

  size_t steps_ = 0;
  // Sums over the recorded steps, in which a step counts less the older it is.
  double weight_ = 0;
  double ms_ = 0;
  double predicted_ms_ = 0;
  double squares_ = 0;  // sum of the squared relative deviations of the steps from the factor
  double squared_weight_ = 0;
};

}  // namespace tandem
