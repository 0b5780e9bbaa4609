#pragma once

#include <algorithm>
#include <array>
#include <cstddef>

namespace tandem {

// Weighted least squares for y = sum of x[i] * coefficient[i] with no coefficient below 0, in
// information form: the weighted sums of x x' and x y. So an observation can be added, or the past
// be forgotten, without the observations themselves, and the constraint is met exactly by an active
// set. x is best scaled so that coefficients are of one order of magnitude.
template <size_t kTerms>
class NormalEquations {
 public:
  using Vector = std::array<double, kTerms>;

  void Decay(double factor) {
    for (size_t i = 0; i < kTerms; ++i) {
      target_[i] *= factor;
      for (size_t j = 0; j < kTerms; ++j) moments_[i][j] *= factor;
    }
  }

  void Add(const Vector& x, double y, double weight) {
    for (size_t i = 0; i < kTerms; ++i) {
      target_[i] += weight * x[i] * y;
      for (size_t j = 0; j < kTerms; ++j) moments_[i][j] += weight * x[i] * x[j];
    }
  }

  // Rescales all observations so far as if each y had been `by` times as large at the same weight.
  void Scale(double by) {
    for (double& sum : target_) sum *= by;
  }

  // The coefficients of the least squares fit, none below 0: drops the most negative term until
  // none is negative. What the observations do not determine stays as in `before`.
  Vector Solve(const Vector& before) const {
    std::array<bool, kTerms> used;
    used.fill(true);
    for (size_t round = 0; round <= kTerms; ++round) {
      const Vector solution = SolveWith(used, before);
      const auto worst = std::min_element(solution.begin(), solution.end());
      if (*worst >= 0.0) return solution;
      used[static_cast<size_t>(worst - solution.begin())] = false;
    }
    return before;
  }

 private:
  using Matrix = std::array<Vector, kTerms>;

  // Solves the normal equations of the used terms by Gaussian elimination; a slight pull towards
  // `before` determines what the observations do not. That makes the matrix symmetric and positive
  // definite, so that no pivoting is needed.
  Vector SolveWith(const std::array<bool, kTerms>& used, const Vector& before) const {
    Matrix a = moments_;
    Vector b = target_;
    for (size_t i = 0; i < kTerms; ++i) {
      const double pull = kPull * (moments_[i][i] + kLeastMoment);
      a[i][i] += pull;
      b[i] += pull * before[i];
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

  static constexpr double kPull = 1e-6;
  static constexpr double kLeastMoment = 1e-9;

  Matrix moments_{};
  Vector target_{};
};

}  // namespace tandem
