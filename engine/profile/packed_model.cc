#include "engine/profile/packed_model.h"

#include <utility>

#include "base/status.h"
#include "model/checkpoint/checkpoint.h"

namespace tandem {

absl::StatusOr<PackedModel> PackModel(const ModelSource& source, LoadProgress progress) {
  const BackendOptions threads = {.num_threads = source.threads};
  PackedModel model;
  ASSIGN_OR_RETURN(model.backend, OpenBackend(source.device, threads));
  ASSIGN_OR_RETURN(model.config, LoadModelConfig(source.model_dir));
  ASSIGN_OR_RETURN(std::unique_ptr<Checkpoint> checkpoint, Checkpoint::Open(source.model_dir));
  AdoptDType(*checkpoint, model.config);
  ASSIGN_OR_RETURN(Backend packing, OpenBackend(source.device, threads));
  ASSIGN_OR_RETURN(model.weights,
                   LoadResidentWeights(model.config, std::move(checkpoint), *model.backend.device,
                                       std::move(packing), source.weights_as, std::move(progress)));
  // The last group to load: all weights are packed.
  RETURN_IF_ERROR(model.weights->Head().status());
  return model;
}

}  // namespace tandem
