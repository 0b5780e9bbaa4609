#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "kernels/registry.h"
#include "model/checkpoint/model_config.h"
#include "model/transformer/weight_store.h"
#include "model/transformer/weights_as.h"

namespace tandem {

// Where a model is, and how it is to be computed.
struct ModelSource {
  std::string model_dir;
  std::string device = "cpu";
  int32_t threads = 0;  // threads of the CPU backend; 0: one per core
  WeightsAs weights_as = WeightsAs::kStored;
};

// A checkpoint on a device, all of whose weights are packed. Members are destroyed in reverse
// order.
struct PackedModel {
  Backend backend;
  ModelConfig config;
  std::unique_ptr<WeightStore> weights;
};

// Loads a checkpoint, and waits until its weights are packed. NOT_FOUND and INVALID_ARGUMENT name
// what is wrong with the checkpoint or the device; RESOURCE_EXHAUSTED when the device's memory is
// too small.
absl::StatusOr<PackedModel> PackModel(const ModelSource& source, LoadProgress progress);

}  // namespace tandem
