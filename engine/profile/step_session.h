#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "engine/model_runner.h"
#include "engine/profile/dummy_steps.h"
#include "engine/profile/packed_model.h"
#include "engine/profile/step_shape.h"
#include "kvstore/kv_store.h"
#include "model/checkpoint/model_config.h"
#include "model/transformer/forward.h"

namespace tandem {

// A checkpoint with its KV pool, run step by step with the engine's own model runner.
// Thread: one at a time.
class StepSession {
 public:
  struct Options {
    std::string model_dir;
    std::string device = "cpu";
    int32_t threads = 0;  // threads of the CPU backend; 0: one per core
    WeightsAs weights_as = WeightsAs::kStored;
    std::optional<DType> kv_dtype;  // none: as the weights
    int32_t block_tokens = 16;
    int32_t max_step_tokens = 512;
    int32_t max_sequences = 64;      // sequences that decode
    int32_t max_context_tokens = 0;  // of each sequence; 0: what the model and max_kv_bytes allow
    int64_t max_kv_bytes = int64_t{1} << 30;
  };

  // Loads a checkpoint. NOT_FOUND and INVALID_ARGUMENT name what is wrong with the checkpoint or
  // the device; RESOURCE_EXHAUSTED when the device's memory is too small.
  static absl::StatusOr<std::unique_ptr<StepSession>> Open(const Options& options,
                                                           LoadProgress progress);

  // Runs one step, its sampling included, and returns its time. The shape must be within limits().
  absl::StatusOr<Duration> Run(const StepShape& shape) { return steps_->Run(shape); }

  // The largest steps that there is room for.
  const StepLimits& limits() const { return limits_; }
  const ModelConfig& config() const { return model_.config; }
  const KvLayout& layout() const { return store_->layout(); }
  Device& device() const { return *model_.backend.device; }

 private:
  StepSession() = default;
  absl::Status SetLimits(const KvLayout& layout);
  absl::Status CreateStore();
  absl::Status WarmUp();

  Options options_;
  StepLimits limits_;
  PackedModel model_;
  std::unique_ptr<Stream> stream_;
  std::unique_ptr<Transformer> transformer_;
  std::unique_ptr<KvStore> store_;
  std::unique_ptr<ModelRunner> runner_;
  std::unique_ptr<DummySteps> steps_;
};

}  // namespace tandem
