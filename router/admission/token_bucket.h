#pragma once

#include "base/clock.h"

namespace tandem {

// Grants an amount per minute: it begins full, with the amount of one minute, and refills evenly.
// It may be overdrawn, for what is known only after it was used; the debt refills first. Thread:
// one at a time. Times must not go backwards.
class TokenBucket {
 public:
  // `per_minute` is above 0.
  TokenBucket(double per_minute, TimePoint now)
      : per_minute_(per_minute), level_(per_minute), at_(now) {}

  // Changes the rate from now on. What is in the bucket stays, as far as there is room for it.
  void SetRate(double per_minute, TimePoint now);
  double Level(TimePoint now) const;
  bool IsFull(TimePoint now) const { return Level(now) >= per_minute_; }
  void Take(double amount, TimePoint now);
  // How long until the level is `amount`, which is at most one minute's; zero when it is already.
  Duration UntilLevel(double amount, TimePoint now) const;

 private:
  double per_minute_;
  double level_;  // as it was at at_; below zero: overdrawn
  TimePoint at_;
};

}  // namespace tandem
