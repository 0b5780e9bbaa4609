#pragma once

#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "engine/simulated/simulated_steps.h"
#include "kernels/registry.h"
#include "model/checkpoint/checkpoint.h"
#include "model/checkpoint/model_config.h"
#include "model/transformer/weight_store.h"
#include "model/transformer/weights_as.h"
#include "server/assembly/worker_options.h"

namespace tandem {

// A worker's model on the device that computes it, or a simulated one. Members are destroyed in
// reverse order.
struct LoadedModel {
  Backend backend;
  std::string device_name;  // "cpu", "cuda:0", "simulated:qwen3-8b-h200"
  std::string name;         // the name under which the model is served
  ModelConfig config;
  WeightsAs weights_as = WeightsAs::kStored;
  uint64_t fingerprint = 0;                // result of FingerprintModel
  std::atomic<uint64_t> weights_hash = 0;  // 0 until all weights have been read
  // The weights, which are filled in while the worker starts, and still afterwards; null where
  // steps are simulated.
  std::unique_ptr<WeightStore> weights;
  std::optional<SimulatedStepsOptions> simulated;  // used in place of weights
};

// A model without its weights.
struct DescribedModel {
  std::unique_ptr<LoadedModel> model;
  std::unique_ptr<Checkpoint> checkpoint;  // null where steps are simulated
};

// Opens the device and the checkpoint, or reads the file of a simulated device and adapts `options`
// to it. Errors are those of LoadModel.
absl::StatusOr<DescribedModel> DescribeModel(WorkerOptions& options);

// Opens the device and the checkpoint and begins to load the weights, on other threads; or reads
// the file of a simulated device and adapts `options` to it. Errors name the device, the file or
// the flag at fault.
absl::StatusOr<std::unique_ptr<LoadedModel>> LoadModel(WorkerOptions& options);

}  // namespace tandem
