#include "engine/loop/start_up.h"

#include "base/log.h"

namespace tandem {

StartUp::StartUp(StepComputation& computation, CostMeasurement& measurement, DecodeSteps decodes,
                 Progress& progress, const Report& failed, const Report& lost)
    : computation_(computation),
      measurement_(measurement),
      decodes_(decodes),
      progress_(progress),
      failed_(failed),
      lost_(lost),
      warm_(!computation.can_warm_up()) {}

bool StartUp::Continue() {
  if (!starting_) return Measure();
  const absl::StatusOr<bool> loaded = computation_.weights_loaded();
  if (!loaded.ok()) {
    warm_ = true;  // steps may run: they fail with this error, which ends their requests
    lost_(loaded.status());
    return false;
  }
  if (!*loaded) return false;
  bool did = !warm_;
  if (warm_) {
    did = Measure();
  } else {
    WarmUp();
  }
  starting_ = !warm_ || measurement_.pending();
  return did;
}

bool StartUp::Measure() {
  const bool did = measurement_.Continue();
  if (did) progress_.CountComputed();
  return did;
}

void StartUp::WarmUp() {
  const absl::StatusOr<bool> last = computation_.WarmUp(decodes_);
  warm_ = last.value_or(true);
  progress_.Count();
  if (last.ok()) return;
  LogWarn("warming up failed, the first steps do what it did not: {}", last.status().ToString());
  failed_(last.status());
}

}  // namespace tandem
