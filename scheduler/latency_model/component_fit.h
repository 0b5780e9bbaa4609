#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "scheduler/latency_model/step_model.h"

namespace tandem {

// A step and the time that it took.
struct TimedStep {
  StepFeatures features;
  double ms = 0;  // above 0
};

// Fits alpha to steps of prefills alone. Chunks of fewer than `floor_below` tokens are taken to
// cost the floor.
PrefillCost FitPrefill(std::span<const TimedStep> steps, int32_t floor_below);
// The value of `floor_below` with which FitPrefill fits the steps best; 0: the steps have no floor.
int32_t ChooseFloor(std::span<const TimedStep> steps);

// Fits beta to steps of decodes alone. `bucket_ends`: the largest batch of each bucket of b0,
// ascending.
DecodeCost FitDecode(std::span<const TimedStep> steps, std::span<const int32_t> bucket_ends);
// The bucket ends with which FitDecode fits the steps best: those of one bucket, or batch sizes
// that double or quadruple.
std::vector<int32_t> ChooseBuckets(std::span<const TimedStep> steps);

// One point of a step curve: the time of a step over the number of its tokens.
struct CurvePoint {
  double tokens = 0;
  double ms = 0;  // above 0
};
// The number of tokens where the curve turns upwards; none when a straight line is as likely.
std::optional<double> FindKnee(std::span<const CurvePoint> curve);

}  // namespace tandem
