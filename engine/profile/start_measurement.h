#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <random>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "engine/profile/step_plan.h"
#include "scheduler/latency_model/step_fit.h"

namespace tandem {

// Measures planned steps in bounded time, one with each call, so that other work can be done in
// between. A first round runs each step once, the small ones first. Its times do not count, because
// first runs include one-off costs; but when a step would take too much of the time, it and all
// larger ones are left out from then on. Further rounds run in random orders until each step has
// run often enough, or the time is over. It reads no clock: the time is the sum of the steps'
// times. Thread: one at a time.
class StartMeasurement {
 public:
  using RunStep = std::function<absl::StatusOr<Duration>(const StepShape&)>;
  struct Bounds {
    Duration time;  // limit for all steps together
    Duration step;  // limit for one step, as predicted from smaller ones
  };

  StartMeasurement(std::vector<PlannedStep> plan, const Bounds& bounds, RunStep run);

  // Runs one step; returns false when the measurement has ended and none was run.
  bool Continue();

  Duration took() const { return took_; }
  int64_t num_runs() const { return runs_; }
  // Fits a cost model to the steps that have run so far. FAILED_PRECONDITION when they are too few,
  // or when a model fitted to some of them mispredicts the others by far; the error of a step that
  // failed.
  absl::StatusOr<StepFit> Fit() const;

 private:
  struct Step {
    PlannedStep planned;
    std::vector<double> ms;
  };

  bool NextRound();
  bool TakesTooLong(const Step& step) const;

  const double max_ms_;
  const double max_step_ms_;
  const RunStep run_;
  std::vector<Step> steps_;  // in the order of the current round
  size_t next_ = 0;
  int32_t round_ = 0;
  double committed_ms_ = 0;  // time that the rounds after the first need at least
  double ms_per_row_ = 0;    // time per row of the latest step of the first round
  Duration took_{};
  int64_t runs_ = 0;
  absl::Status status_;
  std::mt19937_64 random_{1};
};

}  // namespace tandem
