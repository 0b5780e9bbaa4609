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

// Measures the steps of an engine before it serves, where no parameter file says what they take, and
// sets its step model. A request that arrives meanwhile does not wait for the end: the measurement pauses and
// goes on when the engine is idle again. Where the time did not suffice, or other programs disturbed
// it, it is made again then, a few times. The KV blocks that it needs are free while it pauses and
// after it has ended.
// Thread: engine. Everything that the constructor takes must outlive it.
class CostMeasurement {
 public:
  CostMeasurement(const EngineOptions& options, const DummySteps::Parts& parts, StepCosts& costs);

  // Does one part. Returns whether there was one to do.
  bool Continue();
  // Frees the KV blocks for a request. What was measured so far is used if it suffices; otherwise
  // nothing more is measured before Resume.
  void Pause();
  // Goes on after a pause, if there are blocks for it that nothing else uses. The engine must be
  // without requests. A model that was learned from requests meanwhile ends the measurement.
  void Resume();
  // Whether a part could be done now.
  bool pending() const { return !done_ && !paused_; }
  // Whether it holds KV blocks.
  bool running() const { return steps_ != nullptr; }

 private:
  void Begin();
  // Sets the model that was measured and ends the measurement; FAILED_PRECONDITION when there is none.
  absl::Status Adopt();
  void Finish();

  const EngineOptions& options_;
  const DummySteps::Parts parts_;
  StepCosts& costs_;
  bool done_;
  bool paused_ = false;
  int32_t attempts_ = 0;  // that have failed
  std::unique_ptr<DummySteps> steps_;
  std::optional<StartMeasurement> measurement_;
};

}  // namespace tandem
