#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace tandem {

// y = sum of x[i] * coefficient[i] with no coefficient below 0, learned from observations one by
// one: least squares of the relative error, recent observations counting most, in information form
// (the weighted sums of x x' and x y), so that the constraint is met exactly by an active set. What
// was long unseen keeps the coefficient it had. An observation far off the others' spread counts
// little.
template <size_t kTerms>
class NonNegativeFit {
 public:
  using Vector = std::array<double, kTerms>;

  // `forgetting` in (0, 1]: by how much the weight of the past shrinks with each observation. x is
  // best scaled so that coefficients are of one order of magnitude.
  explicit NonNegativeFit(double forgetting) : forgetting_(forgetting) {}

  void Observe(const Vector& x, double y) {
    if (!(y > 0.0)) return;
    const double weight = Weight(Predict(x), y) / (y * y);
    for (size_t i = 0; i < kTerms; ++i) {
      target_[i] = forgetting_ * target_[i] + weight * x[i] * y;
      for (size_t j = 0; j < kTerms; ++j) {
        moments_[i][j] = forgetting_ * moments_[i][j] + weight * x[i] * x[j];
      }
    }
    ++seen_;
    Solve();
  }

  double Predict(const Vector& x) const {
    double sum = 0.0;
    for (size_t i = 0; i < kTerms; ++i) sum += x[i] * coefficients_[i];
    return sum;
  }

  const Vector& coefficients() const { return coefficients_; }
  int64_t seen() const { return seen_; }

 private:
  using Matrix = std::array<Vector, kTerms>;

  // Huber's weight: 1 within kSpreads times the usual error, beyond that falling with the error. An
  // error counts towards the usual one only as far as that, so that an outlier hardly widens it and
  // a lasting change does within some observations.
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

  // Drops the most negative term until none is negative.
  void Solve() {
    std::array<bool, kTerms> used;
    used.fill(true);
    for (size_t round = 0; round <= kTerms; ++round) {
      const Vector solution = SolveWith(used);
      const size_t worst = static_cast<size_t>(std::min_element(solution.begin(), solution.end()) -
                                               solution.begin());
      if (solution[worst] >= 0.0) {
        coefficients_ = solution;
        return;
      }
      used[worst] = false;
    }
  }

  // Gaussian elimination on the normal equations of the used terms; a slight pull towards the
  // coefficients so far decides what the observations do not. Symmetric and positive definite by
  // that: needs no pivoting.
  Vector SolveWith(const std::array<bool, kTerms>& used) const {
    Matrix a = moments_;
    Vector b = target_;
    for (size_t i = 0; i < kTerms; ++i) {
      const double pull = kPull * (moments_[i][i] + kLeastMoment);
      a[i][i] += pull;
      b[i] += pull * coefficients_[i];
      if (used[i]) continue;
      for (size_t j = 0; j < kTerms; ++j) a[i][j] = a[j][i] = 0.0;
      a[i][i] = 1.0;
      b[i] = 0.0;
    }
    for (size_t i = 0; i < kTerms; ++i) {
      for (size_t row = i + 1; row < kTerms; ++row) {
        const double factor = a[row][i] / a[i][i];
        for (size_t j = i; j < kTerms; ++j) a[row][j] -= factor * a[i][j];
        b[row] -= factor * b[i];
      }
    }
    Vector x{};
    for (size_t i = kTerms; i-- > 0;) {
      double sum = b[i];
      for (size_t j = i + 1; j < kTerms; ++j) sum -= a[i][j] * x[j];
      x[i] = sum / a[i][i];
    }
    return x;
  }

  static constexpr double kSpreads = 3.0;
  static constexpr double kLeastSpread = 0.01;
  static constexpr double kSpreadWeight = 0.05;
  static constexpr int64_t kUntrusted = 8;  // observations before any can be called an outlier
  static constexpr double kPull = 1e-6;
  static constexpr double kLeastMoment = 1e-9;

  const double forgetting_;
  Matrix moments_{};
  Vector target_{};
  Vector coefficients_{};
  double spread_ = 0.0;
  int64_t seen_ = 0;
};

}  // namespace tandem
