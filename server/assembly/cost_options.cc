#include "server/assembly/cost_options.h"

#include <chrono>
#include <string>
#include <utility>

#include "base/log.h"
#include "base/machine_name.h"
#include "base/status.h"
#include "kernels/registry.h"

namespace tandem {

CostProvenance ProvenanceOf(const WorkerOptions& options, const LoadedModel& model,
                            const EngineOptions& engine) {
  return {.machine = MachineName(),
          .device = ResolveDeviceName(options.tuning.device),
          .threads = options.tuning.threads,
          .model = model.name,
          .model_fingerprint = model.fingerprint,
          .dtype = std::string(NameOfWeights(model.weights_as, model.config.dtype)),
          .kv_dtype = std::string(Name(engine.layout.dtype)),
          .block_tokens = engine.layout.block_tokens,
          .build = options.build,
          .measured = {}};
}

absl::StatusOr<StartCosts> StartCostsFor(const WorkerTuning& tuning, const LoadedModel& model,
                                         const CostProvenance& here) {
  StartCosts costs;
  if (tuning.cost_model.empty() && model.simulated) {
    costs.steps = model.simulated->steps.coefficients();
    return costs;
  }
  if (tuning.cost_model.empty()) {
    costs.measure_for = std::chrono::duration_cast<Duration>(
        std::chrono::duration<double>(tuning.profile_at_start_seconds));
    return costs;
  }
  absl::StatusOr<CostParameters> file = LoadCostParameters(tuning.cost_model);
  RETURN_IF_ERROR(Annotate(file.status(), "--cost-model"));
  if (!model.simulated) {
    RETURN_IF_ERROR(Annotate(CheckProvenance(file->provenance, here),
                             fmt::format("--cost-model {}", tuning.cost_model)));
  }
  costs.steps = std::move(file->steps);
  costs.error = MeanError(file->held_out);
  LogInfo("cost model file={} measured={} error={:.3f}", tuning.cost_model,
          file->provenance.measured, costs.error);
  return costs;
}

}  // namespace tandem
