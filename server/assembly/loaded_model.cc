#include "server/assembly/loaded_model.h"

#include <utility>

#include "base/status.h"
#include "model/checkpoint/checkpoint.h"
#include "server/assembly/load_progress.h"
#include "server/assembly/model_fingerprint.h"

namespace tandem {

absl::StatusOr<std::unique_ptr<LoadedModel>> LoadModel(const WorkerOptions& options) {
  const WorkerTuning& tuning = options.tuning;
  auto model = std::make_unique<LoadedModel>();
  ASSIGN_OR_RETURN(model->backend, OpenBackend(tuning.device, {.num_threads = tuning.threads}));
  ASSIGN_OR_RETURN(model->config, LoadModelConfig(options.model_dir));
  ASSIGN_OR_RETURN(std::unique_ptr<Checkpoint> checkpoint, Checkpoint::Open(options.model_dir));
  AdoptDType(*checkpoint, model->config);
  ASSIGN_OR_RETURN(model->fingerprint, FingerprintModel(options.model_dir, *checkpoint));
  ASSIGN_OR_RETURN(Backend packing, OpenBackend(tuning.device, {.num_threads = tuning.threads}));
  const auto display = std::make_shared<LoadProgressDisplay>(options.model_name);
  ASSIGN_OR_RETURN(
      model->weights,
      LoadResidentWeights(
          model->config, std::move(checkpoint), *model->backend.device, std::move(packing.ops),
          [display](uint64_t loaded, uint64_t total) { display->Update(loaded, total); },
          [&hash = model->weights_hash](uint64_t computed) { hash = computed; }));
  return model;
}

}  // namespace tandem
