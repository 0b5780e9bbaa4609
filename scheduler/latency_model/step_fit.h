#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "scheduler/latency_model/step_model.h"

namespace tandem {

// What a measured step is used for.
enum class SampleUse : uint8_t {
  kFit,      // steps of prefills alone or of decodes alone: to fit alpha and beta
  kGrid,     // steps of prefills and decodes: a cell of the gamma table
  kCurve,    // one decode beside a growing chunk: batch_thresh
  kHeldOut,  // takes no part in any fit, and says how well the model predicts
};

// One kind of step, run several times.
struct StepSample {
  StepFeatures features;
  SampleUse use = SampleUse::kFit;
  std::vector<double> ms;  // one per repeat, not empty, all above 0
};

double MedianMs(std::span<const double> ms);
// Half the width of the interval that holds the middle 68% of the repeats, relative to their
// median: a coefficient of variation that a few delayed repeats do not change.
double RelativeSpread(std::span<const double> ms);

struct FittedCoefficient {
  std::string name;  // "alpha.a1"
  double value = 0;
  double low = 0;  // lower end of the 95% bootstrap interval
  double high = 0;
};

// The relative error of the model for the held-out samples of one kind of steps, and the spread of
// the repeats of those samples.
struct ComponentError {
  std::string name;  // "prefill", "decode", "mixed"
  int32_t samples = 0;
  double mean = 0;
  double max = 0;
  double spread = 0;  // the median of RelativeSpread over the samples
};

// The mean error over all components; 0: no sample was held out.
double MeanError(std::span<const ComponentError> held_out);

struct StepFit {
  StepCoefficients coefficients;
  std::vector<FittedCoefficient> intervals;
  std::vector<ComponentError> held_out;
};

// Fits all coefficients by least squares of the relative error, none below 0. A floor, buckets and
// a knee are part of the model only where they make the samples likelier (BIC). Samples for kGrid
// must form a full grid of N, B and C / B; there may also be none. `seed` is that of the bootstrap.
// INVALID_ARGUMENT when there are too few samples, or a time is not above 0.
absl::StatusOr<StepFit> FitSteps(std::span<const StepSample> samples, uint64_t seed);

}  // namespace tandem
