#pragma once

#include <functional>

#include "absl/status/status.h"
#include "engine/loop/cost_measurement.h"
#include "engine/progress.h"
#include "engine/step_computation.h"

namespace tandem {

// What an engine does before its first step: it waits for the weights, then warms up the
// computation of steps, and at last measures steps. All happens in parts, so that messages are
// handled in between. A measurement that a request interrupted goes on after the start, when it is
// resumed. Thread: engine. Everything that the constructor takes must outlive it.
class StartUp {
 public:
  using Report = std::function<void(const absl::Status&)>;

  // `failed` is called when warming up failed: the first steps then do the rest of that work.
  // `lost` is called, maybe more than once, when the weights cannot be loaded: every step fails
  // then.
  StartUp(StepComputation& computation, CostMeasurement& measurement, DecodeSteps decodes,
          Progress& progress, const Report& failed, const Report& lost);

  // Does one part of the start-up, if there is one to do now. Returns whether it did.
  bool Continue();

  // Whether steps may be run.
  bool warm() const { return warm_; }
  // Whether the start-up is in progress: weights load, the computation warms up, or steps are
  // measured before the first request.
  bool starting() const { return starting_; }

 private:
  void WarmUp();
  bool Measure();

  StepComputation& computation_;
  CostMeasurement& measurement_;
  const DecodeSteps decodes_;
  Progress& progress_;
  const Report& failed_;
  const Report& lost_;
  bool warm_;
  bool starting_ = true;
};

}  // namespace tandem
