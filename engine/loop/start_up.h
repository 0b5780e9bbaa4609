#pragma once

#include <functional>

#include "absl/status/status.h"
#include "engine/progress.h"
#include "engine/step_computation.h"

namespace tandem {

// What an engine does before its first step: it waits for the weights, then lets what
// computes the steps warm up. Both happen in parts, so that messages are handled in between.
// Thread: engine. Everything that the constructor takes must outlive it.
class StartUp {
 public:
  using Report = std::function<void(const absl::Status&)>;

  // `failed` is called when warming up failed: the first steps then do what it did not. `lost` is
  // called, maybe more than once, when the weights cannot be loaded: every step fails then.
  StartUp(StepComputation& computation, DecodeSteps decodes, Progress& progress,
          const Report& failed, const Report& lost);

  // Does one part, if there is one to do now. Returns whether it did.
  bool Continue();

  // Whether steps may be run.
  bool warm() const { return warm_; }
  // Whether weights load, or the computation warms up.
  bool starting() const { return starting_; }

 private:
  void WarmUp();

  StepComputation& computation_;
  const DecodeSteps decodes_;
  Progress& progress_;
  const Report& failed_;
  const Report& lost_;
  bool warm_;
  bool starting_ = true;
};

}  // namespace tandem
