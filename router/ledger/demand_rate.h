#pragma once

#include "base/clock.h"

namespace tandem {

// A rate per second, averaged exponentially over the latest seconds. What happens counts when it
// happens, so that a burst shows at once.
class DemandRate {
 public:
  void Add(double amount, TimePoint now);
  double At(TimePoint now) const;

 private:
  double rate_ = 0;  // at latest_
  TimePoint latest_{};
};

}  // namespace tandem
