#pragma once

#include <cstdint>
#include <vector>

#include "engine/profile/step_shape.h"
#include "scheduler/latency_model/step_fit.h"

namespace tandem {

struct PlannedStep {
  StepShape shape;
  SampleUse use = SampleUse::kFit;
};

enum class PlanSize : uint8_t {
  kStart,  // alpha and beta alone, for a worker that is starting
  kQuick,
  kFull,
};

// The steps whose times determine all coefficients of the cost model: prefills behind random cached
// prefixes, decodes of many batches and contexts, the grid of the gamma table, the step curve of
// one decode beside a growing chunk, and random steps that are held out. All are within `limits`.
// Equal arguments give an equal plan.
std::vector<PlannedStep> PlanSteps(const StepLimits& limits, PlanSize size, uint64_t seed);

}  // namespace tandem
