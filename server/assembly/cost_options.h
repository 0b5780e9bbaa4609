#pragma once

#include "absl/status/statusor.h"
#include "engine/options.h"
#include "engine/profile/cost_parameters.h"
#include "server/assembly/loaded_model.h"
#include "server/assembly/worker_options.h"

namespace tandem {

// The machine, model and settings for which the parameters of a cost model must have been measured
// to be right for this worker.
CostProvenance ProvenanceOf(const WorkerOptions& options, const LoadedModel& model,
                            const EngineOptions& engine);

// Decides where the engine of a worker takes the cost of its steps from: the parameter file that
// --cost-model names, else the file of a simulated device, else a measurement of bounded time.
// Errors name the file and the field, or the first thing that differs from `here`, and say how to
// measure anew. A simulated device has no machine that could differ.
absl::StatusOr<StartCosts> StartCostsFor(const WorkerTuning& tuning, const LoadedModel& model,
                                         const CostProvenance& here);

}  // namespace tandem
