#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

#include "base/clock.h"

namespace tandem {

// Holds a sender to a rate. A frame that is larger than the bucket is let through whole and paid
// for afterwards, so that frames of any size keep the rate. Pure: the caller passes the time.
class SendRate {
 public:
  // 0 bytes per second means no bound. The bucket holds what the rate gives in `burst`.
  SendRate(uint64_t bytes_per_second, Duration burst)
      : rate_(static_cast<double>(bytes_per_second)),
        burst_(rate_ * std::chrono::duration<double>(burst).count()) {}

  // Takes `bytes` if they may go now, and returns whether they may.
  [[nodiscard]] bool Take(TimePoint now, uint64_t bytes) {
    if (rate_ == 0) return true;
    const double tokens = TokensAt(now);
    if (tokens < 0) return false;
    tokens_ = tokens - static_cast<double>(bytes);
    filled_at_ = now;
    return true;
  }
  // The time at which the next Take can succeed; `now` if it can at once.
  TimePoint ready_at(TimePoint now) const {
    const double owed = rate_ == 0 ? 0 : -TokensAt(now);
    if (owed <= 0) return now;
    // One nanosecond more than exact, so that rounding does not make the caller come too early.
    return now + Duration(static_cast<int64_t>(std::ceil(owed / rate_ * 1e9)) + 1);
  }

 private:
  double TokensAt(TimePoint now) const {
    if (filled_at_ == TimePoint{}) return burst_;  // the bucket is full at the start
    const double seconds = std::chrono::duration<double>(now - filled_at_).count();
    return std::min(burst_, tokens_ + rate_ * seconds);
  }

  const double rate_;   // bytes per second
  const double burst_;  // bytes that may go at once after a pause
  double tokens_ = 0;   // bytes that may go at filled_at_; negative when bytes are owed
  TimePoint filled_at_{};
};

}  // namespace tandem
