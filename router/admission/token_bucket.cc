#include "router/admission/token_bucket.h"

#include <algorithm>
#include <cmath>

namespace tandem {
namespace {

constexpr double kSecondsPerMinute = 60;
constexpr double kLongestSeconds = 24 * 3600;

}  // namespace

void TokenBucket::SetRate(double per_minute, TimePoint now) {
  level_ = std::min(Level(now), per_minute);
  at_ = now;
  per_minute_ = per_minute;
}

double TokenBucket::Level(TimePoint now) const {
  const double seconds = std::chrono::duration<double>(now - at_).count();
  return std::min(level_ + seconds * per_minute_ / kSecondsPerMinute, per_minute_);
}

void TokenBucket::Take(double amount, TimePoint now) {
  level_ = Level(now) - amount;
  at_ = now;
}

Duration TokenBucket::UntilLevel(double amount, TimePoint now) const {
  const double missing = amount - Level(now);
  if (missing <= 0) return {};
  const double seconds = std::min(missing * kSecondsPerMinute / per_minute_, kLongestSeconds);
  // Rounded up, so that a caller who waits exactly so long finds the amount in the bucket.
  return Duration(static_cast<Duration::rep>(std::ceil(seconds * 1e9)));
}

}  // namespace tandem
