#pragma once

#include <optional>
#include <utility>

#include "base/clock.h"

namespace tandem {

// Knows when the current step began. Between two steps the engine takes messages, admits
// reservations and publishes its stats, and the later step has to wait for that. So a step begins
// where the one before ended, unless the engine had nothing to compute since then: the sum of the
// steps' times is the time that outputs take.
class StepTimer {
 public:
  // The engine plans a step at `now`. Returns when the step began.
  TimePoint Begin(TimePoint now) { return std::exchange(ended_, std::nullopt).value_or(now); }
  // The step that was planned was computed and delivered at `now`. Not called when there was
  // nothing to compute.
  void End(TimePoint now) { ended_ = now; }

 private:
  std::optional<TimePoint> ended_;  // end of the previous step, until the next one is planned
};

}  // namespace tandem
