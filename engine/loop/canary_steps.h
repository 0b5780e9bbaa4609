#pragma once

#include <functional>

#include "absl/status/status.h"
#include "base/clock.h"
#include "engine/profile/dummy_steps.h"
#include "engine/progress.h"

namespace tandem {

// Runs a step of one token now and then while an engine has nothing to compute, so that others can tell
// an engine that could serve from one whose steps fail or hang.
// Thread: engine. Everything that the constructor takes must outlive it.
class CanarySteps {
 public:
  // interval: EngineOptions::canary_interval. `failed` is called when a step failed.
  CanarySteps(Duration interval, const DummySteps::Parts& parts, Progress& progress,
              const std::function<void(const absl::Status&)>& failed)
      : interval_(interval), parts_(parts), progress_(progress), failed_(failed) {}

  // The engine has nothing to compute, and may run steps. Runs one if none has ended for the interval.
  // It takes one KV block and gives it back. Where work in progress holds all blocks, the engine counts
  // as computing: that work shows by itself whether it goes on.
  void OnIdle(TimePoint now);

 private:
  absl::Status RunStep();

  const Duration interval_;
  const DummySteps::Parts parts_;
  Progress& progress_;
  const std::function<void(const absl::Status&)>& failed_;
  TimePoint next_;  // not before
};

}  // namespace tandem
