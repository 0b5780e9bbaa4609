#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"

namespace tandem {

// One observed value, with the id of what it was observed of. An empty id means that there is no
// exemplar.
struct Exemplar {
  std::string id;
  double value = 0;
  TimePoint when;
};

// A snapshot of a histogram.
struct HistogramState {
  std::vector<double> bounds;    // upper ends of all buckets but the last, rising
  std::vector<uint64_t> counts;  // values in each bucket, not cumulative; one more than bounds
  std::vector<Exemplar> latest;  // the latest exemplar of each bucket
  double sum = 0;                // the sum of all observed values
};

// Counts values by the bucket that they fall into: bucket i takes values above bounds[i - 1] up to
// and including bounds[i], and the last bucket takes the rest. Thread-safe. Counting takes no lock;
// keeping an exemplar takes one that is held for the copy of a short text.
class Histogram {
 public:
  // `bounds` are the upper ends of the buckets; they may come in any order and have duplicates.
  explicit Histogram(std::vector<double> bounds);

  // Counts the value `times` times.
  void Observe(double value, uint64_t times = 1);
  // Counts the value once, and keeps it as the latest one of its bucket under the name `id`.
  void Observe(double value, std::string_view id, TimePoint now);

  HistogramState state() const;

 private:
  size_t BucketOf(double value) const;

  const std::vector<double> bounds_;
  const std::unique_ptr<std::atomic<uint64_t>[]> counts_;
  std::atomic<double> sum_ = 0;
  mutable absl::Mutex mutex_;
  std::vector<Exemplar> latest_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem
