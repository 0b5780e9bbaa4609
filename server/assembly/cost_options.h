#pragma once

#include "absl/status/statusor.h"
#include "engine/options.h"
#include "engine/profile/cost_parameters.h"
#include "server/assembly/loaded_model.h"
#include "server/assembly/worker_options.h"

namespace tandem {

// What parameters of the cost model must have been measured with to be right for this worker.
CostProvenance ProvenanceOf(const WorkerOptions& options, const LoadedModel& model,
                            const EngineOptions& engine);

// What the engine of a worker is told of the time that its steps take: what the parameter file says
// that --cost-model names, else of a simulated device its own file, else how long it shall measure.
// Errors name the file and the field, or the first thing that differs from `here`, and say how to
// measure anew. A simulated device has no machine that could differ.
absl::StatusOr<StartCosts> StartCostsFor(const WorkerTuning& tuning, const LoadedModel& model,
                                         const CostProvenance& here);

}  // namespace tandem
