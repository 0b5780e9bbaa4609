#pragma once

#include <atomic>
#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "kernels/registry.h"
#include "model/checkpoint/model_config.h"
#include "model/transformer/weight_store.h"
#include "server/assembly/worker_options.h"

namespace tandem {

// A worker's model on the device that computes it. Members are destroyed in reverse order.
struct LoadedModel {
  Backend backend;
  ModelConfig config;
  uint64_t fingerprint = 0;                // FingerprintModel
  std::atomic<uint64_t> weights_hash = 0;  // 0 until all weights have been read
  std::unique_ptr<WeightStore> weights;    // filled while the worker starts, and after
};

// Opens the device and the checkpoint and begins to load the weights, on other threads. Errors name
// the device or the file at fault.
absl::StatusOr<std::unique_ptr<LoadedModel>> LoadModel(const WorkerOptions& options);

}  // namespace tandem
