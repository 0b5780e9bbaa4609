#pragma once

#include <cstdint>

#include "base/clock.h"

namespace tandem {

// Holds a sender to a rate. A frame that is larger than the bucket is let through whole and paid for
// afterwards, so that frames of any size keep the rate.
// Pure: the caller passes the time.
class TokenBucket {
 public:
  // 0 bytes per second means no bound. The bucket holds what the rate gives in `burst`.
  TokenBucket(uint64_t bytes_per_second, Duration burst);

  // Takes `bytes` if they may go now, and returns whether they may.
  [[nodiscard]] bool Take(TimePoint now, uint64_t bytes);
  // When the next Take succeeds, unless one succeeds before.
  TimePoint ready_at(TimePoint now) const;

 private:
  double TokensAt(TimePoint now) const;

  const double rate_;   // bytes per second
  const double burst_;  // bytes that may go at once after a pause
  double tokens_ = 0;   // bytes that may go at filled_at_; negative when bytes are owed
  TimePoint filled_at_{};
};

}  // namespace tandem
