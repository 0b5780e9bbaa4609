#include "bench/serving/distribution.h"

#include <algorithm>
#include <cmath>
#include <numeric>
#include <utility>

namespace tandem::loadgen {

Distribution::Distribution(std::vector<double> samples) : sorted_(std::move(samples)) {
  std::sort(sorted_.begin(), sorted_.end());
}

double Distribution::Mean() const {
  if (empty()) return 0;
  return std::accumulate(sorted_.begin(), sorted_.end(), 0.0) / static_cast<double>(count());
}

double Distribution::Deviation() const {
  if (empty()) return 0;
  const double mean = Mean();
  double squares = 0;
  for (const double sample : sorted_) squares += (sample - mean) * (sample - mean);
  return std::sqrt(squares / static_cast<double>(count()));
}

double Distribution::Max() const { return empty() ? 0 : sorted_.back(); }

double Distribution::Percentile(double percent) const {
  if (empty()) return 0;
  const double rank = percent / 100 * static_cast<double>(count() - 1);
  const auto below = static_cast<size_t>(rank);
  const size_t above = std::min(below + 1, count() - 1);
  const double weight = rank - static_cast<double>(below);
  return sorted_[below] + (sorted_[above] - sorted_[below]) * weight;
}

double Distribution::ShareUpTo(double value) const {
  if (empty()) return 0;
  const auto end = std::upper_bound(sorted_.begin(), sorted_.end(), value);
  return static_cast<double>(end - sorted_.begin()) / static_cast<double>(count());
}

ShareInterval WilsonInterval(size_t hits, size_t trials) {
  if (trials == 0) return {};
  constexpr double kZ = 1.959964;  // of 95%
  const auto n = static_cast<double>(trials);
  const double share = static_cast<double>(hits) / n;
  const double scale = 1 + kZ * kZ / n;
  const double middle = (share + kZ * kZ / (2 * n)) / scale;
  const double reach = kZ * std::sqrt(share * (1 - share) / n + kZ * kZ / (4 * n * n)) / scale;
  return {share, std::max(0.0, middle - reach), std::min(1.0, middle + reach)};
}

}  // namespace tandem::loadgen
