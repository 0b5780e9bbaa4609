#pragma once

#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/status.h"
#include "engine/options.h"
#include "engine/profile/dummy_steps.h"
#include "engine/profile/start_measurement.h"
#include "scheduler/latency_model/step_costs.h"

namespace tandem {

// Measures the steps of an engine before it serves, where no parameter file gives their times, and
// sets its step model. A request that arrives meanwhile does not wait for the end: the measurement
// pauses and continues when the engine is idle again. Where its time did not suffice, or other
// programs disturbed it, the measurement is repeated when the engine is idle, a few times. Its KV
// blocks are free while it pauses and after it has ended.
// Thread: engine. Everything that the constructor takes must outlive it.
class CostMeasurement {
 public:
  CostMeasurement(const EngineOptions& options, const DummySteps::Parts& parts, StepCosts& costs);

  // Does one part of the measurement. Returns whether there was one to do.
  bool Continue();
  // Pauses and frees the measurement's KV blocks for a request. What was measured so far is used if
  // it suffices; otherwise nothing more is measured before Resume.
  void Pause();
  // Continues after a pause, if there are blocks for the measurement that nothing else uses. The
  // engine must be without requests. A model that was learned from requests meanwhile ends the
  // measurement.
  void Resume();
  // Whether Continue has a part to do now.
  bool pending() const { return !done_ && !paused_; }
  // Whether the measurement holds KV blocks.
  bool running() const { return steps_ != nullptr; }

 private:
  void Begin();
  // Fits the step model to what was measured, sets it as the engine's, and ends the measurement;
  // FAILED_PRECONDITION when no usable model can be fitted.
  absl::Status Adopt();
  void Finish();

  const EngineOptions& options_;
  const DummySteps::Parts parts_;
  StepCosts& costs_;
  bool done_;
  bool paused_ = false;
  int32_t attempts_ = 0;  // number of attempts that have failed
  std::unique_ptr<DummySteps> steps_;
  std::optional<StartMeasurement> measurement_;
};

}  // namespace tandem
