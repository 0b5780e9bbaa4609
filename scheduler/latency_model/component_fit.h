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

// Steps of prefills alone. Chunks below `floor_below` tokens are taken to cost the floor.
PrefillCost FitPrefill(std::span<const TimedStep> steps, int32_t floor_below);
// The best value of `floor_below`; 0: the steps have no floor.
int32_t ChooseFloor(std::span<const TimedStep> steps);

// Steps of decodes alone, with the ends of the buckets of b0, ascending.
DecodeCost FitDecode(std::span<const TimedStep> steps, std::span<const int32_t> bucket_ends);
// The best ends: one bucket, or batches that double.
std::vector<int32_t> ChooseBuckets(std::span<const TimedStep> steps);

// One point of a step curve.
struct CurvePoint {
  double tokens = 0;
  double ms = 0;  // above 0
};
// The number of tokens where the curve turns upwards; none when a straight line is as likely.
std::optional<double> FindKnee(std::span<const CurvePoint> curve);

}  // namespace tandem
