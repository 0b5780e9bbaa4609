#pragma once

#include <cstdint>

#include "base/clock.h"

namespace tandem {

// Holds a sender to a rate. What is larger than the bucket is let through whole and paid for
// afterwards, so that frames of any size keep the rate.
// Pure: the caller says what time it is.
class TokenBucket {
 public:
  // 0 bytes per second: no bound.
  explicit TokenBucket(uint64_t bytes_per_second);

  // Whether `bytes` may go now; if so they are taken.
  [[nodiscard]] bool Take(TimePoint now, uint64_t bytes);
  // When the next Take will succeed, if none does before.
  TimePoint ready_at(TimePoint now) const;

 private:
  double TokensAt(TimePoint now) const;

  const double rate_;   // bytes per second
  const double burst_;  // what may go at once after a pause
  double tokens_ = 0;   // at filled_at_; below zero: owed
  TimePoint filled_at_{};
};

}  // namespace tandem
