#pragma once

#include <optional>

namespace tandem::loadgen {

struct RateSearchOptions {
  double attainment = 0.9;  // share of the requests that must be good
  double start_rate = 1;    // requests/s
  double tolerance = 0.05;  // the answer is at most this share below the highest rate that holds
  int max_probes = 16;
  // A probe lasts so long at least, whatever the rate: in a short one even a hopeless rate holds,
  // because the queue has no time to grow.
  double probe_seconds = 30;
};

// Finds the highest request rate at which enough requests are good: doubles or halves the rate
// until the answer lies between two rates, then halves the interval on a logarithmic scale. Assumes
// that more load is never better. Decides only; the caller runs the probes.
class RateSearch {
 public:
  explicit RateSearch(const RateSearchOptions& options)
      : options_(options), next_(options.start_rate) {}

  // The rate to try next; absent when the search is over.
  std::optional<double> Next() const;
  // What came of a probe at Next().
  void Report(bool attained);

  // The highest rate that held; absent when none did.
  std::optional<double> best() const { return holds_; }

 private:
  const RateSearchOptions options_;
  double next_;
  int probes_ = 0;
  std::optional<double> holds_;
  std::optional<double> fails_;
};

}  // namespace tandem::loadgen
