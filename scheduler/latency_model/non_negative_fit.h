#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "scheduler/latency_model/normal_equations.h"

namespace tandem {

// Fits y = sum of x[i] * coefficient[i] with no coefficient below 0 to observations that arrive one
// by one: least squares of the relative error, recent observations counting most. A term that no
// recent observation has keeps its coefficient. An observation whose error is far above the usual
// error counts little.
template <size_t kTerms>
class NonNegativeFit {
 public:
  using Vector = std::array<double, kTerms>;

  // `forgetting` in (0, 1]: the factor by which the weight of all past observations shrinks with
  // each new one. x is best scaled so that coefficients are of one order of magnitude.
  explicit NonNegativeFit(double forgetting) : forgetting_(forgetting) {}

  void Observe(const Vector& x, double y) {
    if (!(y > 0.0)) return;
    const double weight = Weight(Predict(x), y) / (y * y);
    equations_.Decay(forgetting_);
    equations_.Add(x, y, weight);
    ++seen_;
    coefficients_ = equations_.Solve(coefficients_);
  }

  double Predict(const Vector& x) const {
    double sum = 0.0;
    for (size_t i = 0; i < kTerms; ++i) sum += x[i] * coefficients_[i];
    return sum;
  }

  // Rescales all observations so far as if each y had been `by` times as large.
  void Scale(double by) {
    equations_.Scale(by);
    for (double& coefficient : coefficients_) coefficient *= by;
  }

  const Vector& coefficients() const { return coefficients_; }
  int64_t seen() const { return seen_; }

 private:
  // Huber's weight: 1 for an error within kSpreads times the usual error, beyond that falling with
  // the error. An error enters the usual error only up to that limit, so that an outlier hardly
  // raises it and a lasting change does within some observations.
  double Weight(double predicted, double y) {
    const double error = std::abs(y - predicted) / std::max(predicted, y);
    const double limit = kSpreads * std::max(spread_, kLeastSpread);
    if (seen_ < kUntrusted) {
      spread_ += (error - spread_) / static_cast<double>(seen_ + 1);
      return 1.0;
    }
    spread_ += kSpreadWeight * (std::min(error, limit) - spread_);
    return error <= limit ? 1.0 : limit / error;
  }

  static constexpr double kSpreads = 3.0;
  static constexpr double kLeastSpread = 0.01;
  static constexpr double kSpreadWeight = 0.05;
  static constexpr int64_t kUntrusted = 8;  // observations before any can be called an outlier

  const double forgetting_;
  NormalEquations<kTerms> equations_;
  Vector coefficients_{};
  double spread_ = 0.0;
  int64_t seen_ = 0;
};

}  // namespace tandem
