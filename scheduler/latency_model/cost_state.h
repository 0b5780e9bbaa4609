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

// What a worker knows of the time that its steps take, at one moment.
struct CostState {
  std::shared_ptr<const StepModel> model;  // null: no step was measured yet
  CostSource source = CostSource::kNone;
  uint64_t revision = 0;  // another value than before: the model has changed
  double error = 0;       // mean of |predicted - measured| / measured of the latest steps
  double drift = 0;       // mean of measured / predicted of the latest steps; 0: none has run
  uint64_t steps = 0;     // that error and drift were computed from, in all
};

}  // namespace tandem
