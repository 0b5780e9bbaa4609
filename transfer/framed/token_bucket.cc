#include "transfer/framed/token_bucket.h"

#include <algorithm>
#include <cmath>

namespace tandem {
namespace {

// The burst in time at the rate: long enough that a loop which wakes every millisecond keeps the rate,
// short enough that a measurement over a second sees the rate.
constexpr double kBurstSeconds = 0.01;

}  // namespace

TokenBucket::TokenBucket(uint64_t bytes_per_second)
    : rate_(static_cast<double>(bytes_per_second)), burst_(rate_ * kBurstSeconds) {}

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
