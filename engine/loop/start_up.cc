#include "engine/loop/start_up.h"

#include "base/log.h"

namespace tandem {

StartUp::StartUp(StepComputation& computation, DecodeSteps decodes, Progress& progress,
                 const Report& failed, const Report& lost)
    : computation_(computation),
      decodes_(decodes),
      progress_(progress),
      failed_(failed),
      lost_(lost),
      warm_(!computation.can_warm_up()) {}

bool StartUp::Continue() {
  if (!starting_) return false;
  const absl::StatusOr<bool> loaded = computation_.weights_loaded();
  if (!loaded.ok()) {
    warm_ = true;  // every step fails with this error, so that requests end with it
    lost_(loaded.status());
    return false;
  }
  if (!*loaded) return false;
  const bool warms_up = !warm_;
  if (warms_up) WarmUp();
  starting_ = !warm_;
  return warms_up;
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
