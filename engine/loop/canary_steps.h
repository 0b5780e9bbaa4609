#pragma once

#include <functional>

#include "absl/status/status.h"
#include "base/clock.h"
#include "engine/profile/dummy_steps.h"
#include "engine/progress.h"

namespace tandem {

// Runs a step of one token now and then while an engine has nothing to compute, so that others can
// tell an engine that could serve from one whose steps fail or hang. Thread: engine. Everything
// that the constructor takes must outlive it.
class CanarySteps {
 public:
  // `interval`: EngineOptions::canary_interval. `failed` is called when a step failed.
  CanarySteps(Duration interval, const DummySteps::Parts& parts, Progress& progress,
              const std::function<void(const absl::Status&)>& failed)
      : interval_(interval), parts_(parts), progress_(progress), failed_(failed) {}

  // Call when the engine has nothing to compute and may run steps. Runs a step if none has ended
  // for the interval. The step takes one KV block and frees it again. When work in progress holds
  // all blocks, no step is run and the engine counts as computing: whether it works will show in
  // that work.
  void OnIdle(TimePoint now);

 private:
  absl::Status RunStep();

  const Duration interval_;
  const DummySteps::Parts parts_;
  Progress& progress_;
  const std::function<void(const absl::Status&)>& failed_;
  TimePoint next_;  // earliest time of the next step
};

}  // namespace tandem
