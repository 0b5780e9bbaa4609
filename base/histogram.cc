#include "base/histogram.h"

#include <algorithm>
#include <utility>

namespace tandem {
namespace {

std::vector<double> SortedOnce(std::vector<double> bounds) {
  std::sort(bounds.begin(), bounds.end());
  bounds.erase(std::unique(bounds.begin(), bounds.end()), bounds.end());
  return bounds;
}

}  // namespace

Histogram::Histogram(std::vector<double> bounds)
    : bounds_(SortedOnce(std::move(bounds))),
      counts_(std::make_unique<std::atomic<uint64_t>[]>(bounds_.size() + 1)),
      latest_(bounds_.size() + 1) {}

size_t Histogram::BucketOf(double value) const {
  return static_cast<size_t>(std::ranges::lower_bound(bounds_, value) - bounds_.begin());
}

// Relaxed order is enough, because the numbers guard no other data.
void Histogram::Observe(double value, uint64_t times) {
  counts_[BucketOf(value)].fetch_add(times, std::memory_order_relaxed);
  sum_.fetch_add(value * static_cast<double>(times), std::memory_order_relaxed);
}

void Histogram::Observe(double value, std::string_view id, TimePoint now) {
  Observe(value);
  absl::MutexLock lock(&mutex_);
  Exemplar& latest = latest_[BucketOf(value)];
  latest.id.assign(id);
  latest.value = value;
  latest.when = now;
}

HistogramState Histogram::state() const {
  HistogramState state{.bounds = bounds_};
  for (size_t i = 0; i <= bounds_.size(); ++i) {
    state.counts.push_back(counts_[i].load(std::memory_order_relaxed));
  }
  state.sum = sum_.load(std::memory_order_relaxed);
  absl::MutexLock lock(&mutex_);
  state.latest = latest_;
  return state;
}

}  // namespace tandem
