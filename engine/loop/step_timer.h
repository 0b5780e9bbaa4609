#pragma once

#include <optional>
#include <utility>

#include "base/clock.h"

namespace tandem {

// Since when the engine works for a step. Between two steps it takes messages, admits reservations and
// publishes what it knows, for which the second one has to wait. So a step begins where the one before
// ended, unless the engine had nothing to compute since: sums of these times are what outputs take.
class StepTimer {
 public:
  // The engine plans a step at `now`. Returns when the step began.
  TimePoint Begin(TimePoint now) { return std::exchange(ended_, std::nullopt).value_or(now); }
  // What was planned was computed and delivered. Not called when there was nothing to compute.
  void End(TimePoint now) { ended_ = now; }

 private:
  std::optional<TimePoint> ended_;  // of the step before, while nothing was planned since
};

}  // namespace tandem
