#pragma once

#include <memory>
#include <optional>

#include "base/clock.h"
#include "engine/options.h"
#include "engine/profile/dummy_steps.h"
#include "engine/profile/start_measurement.h"
#include "scheduler/latency_model/step_costs.h"

namespace tandem {

// Measures the steps of an engine before it serves, where nothing told what they take, and sets its
// step model. The KV blocks that this needs are free again when it has ended.
// Thread: engine. Everything that the constructor takes must outlive it.
class CostMeasurement {
 public:
  CostMeasurement(const EngineOptions& options, const DummySteps::Parts& parts, StepCosts& costs);

  // Does one part. Returns whether there was one to do.
  bool Continue();
  // Ends it now: what was measured so far is used if it suffices.
  void End();
  // Whether all is done, or nothing is to be done.
  bool done() const { return done_; }
  // Whether it holds KV blocks.
  bool running() const { return steps_ != nullptr; }

 private:
  void Begin();
  void Finish();

  const EngineOptions& options_;
  const DummySteps::Parts parts_;
  StepCosts& costs_;
  bool done_;
  std::unique_ptr<DummySteps> steps_;
  std::optional<StartMeasurement> measurement_;
};

}  // namespace tandem
