#pragma once

#include <chrono>
#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "engine/profile/step_plan.h"
#include "scheduler/latency_model/step_fit.h"

namespace tandem {

struct MeasureOptions {
  int32_t repeats = 30;
  int32_t warm_ups = 2;  // runs of each step before the repeats, which do not count
  int32_t attempts = 3;  // limit of the attempts at a step whose repeats are spread too far
  double accepted_spread = 0.05;  // limit of the RelativeSpread of a step's repeats
  // A further attempt is made only when all steps with all attempts are expected to take no longer
  // than this in total.
  Duration max_time = std::chrono::hours(24);
  uint64_t seed = 1;  // seed of the random order of the runs
};

struct MeasuredStep {
  PlannedStep step;
  StepSample sample;
  bool noisy = false;  // its repeats were spread too far in every attempt
};

// Runs every planned step `repeats` times, in rounds that each run all steps once in a random
// order, so that a disturbance falls on many steps and not on all repeats of one. Steps whose
// repeats are spread too far are measured again, and the attempt with the least spread counts.
// `run` runs one step; `progress` is called after each run, and additional attempts raise its
// total. An error of `run` is returned.
absl::StatusOr<std::vector<MeasuredStep>> MeasureSteps(
    std::span<const PlannedStep> plan, const MeasureOptions& options,
    const std::function<absl::StatusOr<Duration>(const StepShape&)>& run,
    const std::function<void(int64_t done, int64_t total)>& progress);

}  // namespace tandem
