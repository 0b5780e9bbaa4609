#pragma once

#include <cstddef>

namespace tandem {

// By which factor steps take longer than a model says, on average over their time: what a sum of many
// steps is off by. Later steps weigh more, the latest kMemory of them about as much as all before. A
// step counts as at most kMostOfUsual times what is usual, so that one that stalled says little.
class PaceMean {
 public:
  // A step that took `ms`, and `predicted_ms` by the model; above 0, both.
  void Add(double ms, double predicted_ms);

  // The factor is 1 before the first step.
  double factor() const;
  // The standard error of the factor, as a share of it.
  double error() const;
  size_t steps() const { return steps_; }

  // All steps so far are taken to have needed `by` times as long.
  void Slow(double by) { ms_ *= by; }
  // The model says now that steps take `by` times as long as it said.
  void Rescale(double by) { predicted_ms_ *= by; }

 private:
  static constexpr double kMemory = 256;
  static constexpr double kMostOfUsual = 3;
  // Before so many steps nothing is known to be usual.
  static constexpr size_t kFew = 8;

  size_t steps_ = 0;
  // Sums in which a step counts less the older it is.
  double weight_ = 0;
  double ms_ = 0;
  double predicted_ms_ = 0;
  double squares_ = 0;  // of each step's relative deviation from the factor of its time
  double squared_weight_ = 0;
};

}  // namespace tandem
