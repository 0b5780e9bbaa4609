#pragma once

#include <atomic>
#include <cstdint>

#include "base/clock.h"

namespace tandem {

// Shows other threads whether the engine thread makes progress, in a step or while it is idle, and
// when it last computed something. Written by the engine thread and read by any. Relaxed order is
// enough, because the numbers guard no other data.
class Progress {
 public:
  explicit Progress(const Clock& clock) : clock_(clock), computed_at_(clock.Now()) {}

  // Counts progress: a message, a layer, a step, or a wait without a message has ended.
  void Count() { count_.fetch_add(1, std::memory_order_relaxed); }
  // Counts a layer or a step that the device has computed, and notes the time.
  void CountComputed() {
    Count();
    computed_at_.store(clock_.Now(), std::memory_order_relaxed);
  }
  uint64_t count() const { return count_.load(std::memory_order_relaxed); }
  // The time of the latest CountComputed; the time of construction before the first.
  TimePoint computed_at() const { return computed_at_.load(std::memory_order_relaxed); }

 private:
  const Clock& clock_;
  std::atomic<uint64_t> count_ = 0;
  std::atomic<TimePoint> computed_at_;
};

}  // namespace tandem
