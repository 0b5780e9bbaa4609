#include "scheduler/latency_model/pace_mean.h"

#include <algorithm>
#include <cmath>

namespace tandem {

void PaceMean::Add(double ms, double predicted_ms) {
  const double usual_ms = factor() * predicted_ms;
  if (steps_ >= kFew) ms = std::min(ms, kMostOfUsual * usual_ms);
  ++steps_;
  constexpr double kKept = 1 - 1 / kMemory;
  const double deviation = ms / usual_ms - 1;
  weight_ = weight_ * kKept + 1;
  squared_weight_ = squared_weight_ * kKept * kKept + 1;
  ms_ = ms_ * kKept + ms;
  predicted_ms_ = predicted_ms_ * kKept + predicted_ms;
  squares_ = squares_ * kKept + deviation * deviation;
}

double PaceMean::factor() const { return predicted_ms_ > 0 ? ms_ / predicted_ms_ : 1; }

// The standard error of a weighted mean with the weights of the recorded steps, relative to the
// factor.
double PaceMean::error() const {
  if (steps_ < 2) return 1;
  return std::sqrt(squares_ / weight_ * squared_weight_) / weight_;
}

}  // namespace tandem
