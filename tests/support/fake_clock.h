#pragma once

#include <atomic>

#include "base/clock.h"

namespace tandem {

// A clock that moves when the test says so. It starts far ahead of the real one, so that a thread
// which waits in real time for one of its deadlines sleeps until it is given a message.
// Thread-safe.
class FakeClock final : public Clock {
 public:
  TimePoint Now() const override { return start_ + Duration(elapsed_.load()); }
  void Advance(Duration by) { elapsed_ += by.count(); }

 private:
  const TimePoint start_ = std::chrono::steady_clock::now() + std::chrono::hours(1000);
  std::atomic<Duration::rep> elapsed_{0};
};

}  // namespace tandem
