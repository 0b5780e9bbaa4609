#include "server/assembly/loaded_model.h"

#include <utility>

#include "base/status.h"
#include "model/checkpoint/checkpoint.h"
#include "server/assembly/load_progress.h"
#include "server/assembly/model_fingerprint.h"
#include "server/assembly/model_name.h"
#include "server/assembly/simulated_worker.h"

namespace tandem {

namespace {

// Loads a simulated device. The CPU backend copies and moves its blocks of KV, which needs no
// threads.
absl::StatusOr<std::unique_ptr<LoadedModel>> LoadSimulated(const std::string& file,
                                                           WorkerOptions& options) {
  auto model = std::make_unique<LoadedModel>();
  ASSIGN_OR_RETURN(const SimulatedDevice device, LoadSimulatedDevice(file, options.model_dir));
  ASSIGN_OR_RETURN(options, OnSimulatedDevice(device, options));
  ASSIGN_OR_RETURN(model->backend, OpenBackend("cpu", {.num_threads = 1}));
  ASSIGN_OR_RETURN(model->name, SimulatedModelName(device, options.model_name));
  ASSIGN_OR_RETURN(model->simulated, StepsOf(device, options.tuning.simulated_slowdown));
  model->device_name = "simulated:" + device.name;
  model->config = StandInFor(device);
  model->fingerprint = device.fingerprint;
  model->weights_hash = device.fingerprint;
  return model;
}

}  // namespace

absl::StatusOr<DescribedModel> DescribeModel(WorkerOptions& options) {
  const WorkerTuning& tuning = options.tuning;
  DescribedModel described;
  if (const std::optional<std::string> file = SimulatedFile(tuning.device)) {
    ASSIGN_OR_RETURN(described.model, LoadSimulated(*file, options));
    return described;
  }
  if (options.model_dir.empty()) {
    return InvalidArgument(
        "--model is missing: give a directory with config.json and *.safetensors");
  }
  if (tuning.simulated_slowdown != 1) {
    return InvalidArgument("--simulated-slowdown {}: --device {} is not simulated",
                           tuning.simulated_slowdown, tuning.device);
  }
  auto model = std::make_unique<LoadedModel>();
  ASSIGN_OR_RETURN(model->backend, OpenBackend(tuning.device, {.num_threads = tuning.threads}));
  model->device_name = model->backend.device->name();
  model->name = options.model_name.empty() ? ModelNameFor(options.model_dir) : options.model_name;
  ASSIGN_OR_RETURN(model->config, LoadModelConfig(options.model_dir));
  ASSIGN_OR_RETURN(described.checkpoint, Checkpoint::Open(options.model_dir));
  AdoptDType(*described.checkpoint, model->config);
  ASSIGN_OR_RETURN(model->weights_as, ParseWeightsAs(tuning.weights));
  ASSIGN_OR_RETURN(model->fingerprint,
                   FingerprintModel(options.model_dir, *described.checkpoint, model->weights_as));
  described.model = std::move(model);
  return described;
}

absl::StatusOr<std::unique_ptr<LoadedModel>> LoadModel(WorkerOptions& options) {
  ASSIGN_OR_RETURN(DescribedModel described, DescribeModel(options));
  std::unique_ptr<LoadedModel> model = std::move(described.model);
  if (model->simulated) return model;
  const WorkerTuning& tuning = options.tuning;
  ASSIGN_OR_RETURN(Backend packing, OpenBackend(tuning.device, {.num_threads = tuning.threads}));
  const auto display = std::make_shared<LoadProgressDisplay>(model->name);
  ASSIGN_OR_RETURN(
      model->weights,
      LoadResidentWeights(
          model->config, std::move(described.checkpoint), *model->backend.device,
          std::move(packing), model->weights_as,
          [display](uint64_t loaded, uint64_t total) { display->Update(loaded, total); },
          [&hash = model->weights_hash](uint64_t computed) { hash = computed; }));
  return model;
}

}  // namespace tandem
