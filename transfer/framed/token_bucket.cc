#include "transfer/framed/token_bucket.h"

#include <algorithm>
#include <cmath>

namespace tandem {

TokenBucket::TokenBucket(uint64_t bytes_per_second, Duration burst)
    : rate_(static_cast<double>(bytes_per_second)),
      burst_(rate_ * std::chrono::duration<double>(burst).count()) {}

double TokenBucket::TokensAt(TimePoint now) const {
  // The bucket is full at the start.
  if (filled_at_ == TimePoint{}) return burst_;
  const double seconds = std::chrono::duration<double>(now - filled_at_).count();
  return std::min(burst_, tokens_ + rate_ * seconds);
}

bool TokenBucket::Take(TimePoint now, uint64_t bytes) {
  if (rate_ == 0) return true;
  const double tokens = TokensAt(now);
  if (tokens < 0) return false;
  tokens_ = tokens - static_cast<double>(bytes);
  filled_at_ = now;
  return true;
}

TimePoint TokenBucket::ready_at(TimePoint now) const {
  if (rate_ == 0) return now;
  const double owed = -TokensAt(now);
  if (owed <= 0) return now;
  // One nanosecond more than exact, so that rounding does not make the caller come too early.
  return now + Duration(static_cast<int64_t>(std::ceil(owed / rate_ * 1e9)) + 1);
}

}  // namespace tandem
