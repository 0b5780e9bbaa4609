#pragma once

#include <cstddef>
#include <vector>

namespace tandem::loadgen {

// Samples of one quantity, and what is said about them.
class Distribution {
 public:
  Distribution() = default;
  explicit Distribution(std::vector<double> samples);

  size_t count() const { return sorted_.size(); }
  bool empty() const { return sorted_.empty(); }
  // All are 0 without samples.
  double Mean() const;
  double Deviation() const;  // standard deviation of the samples, dividing by their number
  double Max() const;
  // `percent` in [0, 100], by linear interpolation between the two nearest samples, as numpy's
  // percentile does by default.
  double Percentile(double percent) const;
  double Median() const { return Percentile(50); }
  // The share of samples that are at most `value`; 0 without samples.
  double ShareUpTo(double value) const;
  const std::vector<double>& sorted() const { return sorted_; }

 private:
  std::vector<double> sorted_;
};

// A share and where the true one lies with 95% confidence (Wilson's interval).
struct ShareInterval {
  double share = 0;
  double low = 0;
  double high = 1;
};
ShareInterval WilsonInterval(size_t hits, size_t trials);

}  // namespace tandem::loadgen
