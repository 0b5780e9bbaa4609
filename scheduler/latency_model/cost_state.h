#pragma once

#include <cstdint>
#include <memory>

namespace tandem {

class StepModel;

// Where a worker's step model comes from.
enum class CostSource : uint8_t {
  kNone,
  kFile,      // a parameter file that fits this machine and this model
  kMeasured,  // measured by the worker before it served
  kLearned,   // fitted to steps that ran while it served
};

// A worker's estimate of the time that its steps take, at one moment.
struct CostState {
  std::shared_ptr<const StepModel> model;  // null: no step was measured yet
  CostSource source = CostSource::kNone;
  uint64_t revision = 0;  // differs from the value before when the model has changed
  double error = 0;       // mean of |predicted - measured| / measured of the latest steps
  double drift = 0;       // mean of measured / predicted of the latest steps; 0: none has run
  uint64_t steps = 0;     // the number of steps from which error and drift were computed
};

}  // namespace tandem
