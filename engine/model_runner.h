#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "engine/prompt_scores.h"
#include "engine/sequence.h"
#include "engine/step_batch.h"
#include "engine/step_computation.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "kvstore/kv_store.h"
#include "model/transformer/forward.h"

namespace tandem {

// Turns the chunks of one step into the ragged batch of a forward pass, and its logits into tokens.
// Thread: engine. Everything that the constructor takes must outlive it.
class ModelRunner final : public StepComputation {
 public:
  // `stream` is a stream of `device`, the one that `store` computes on.
  ModelRunner(Transformer& transformer, Ops& ops, KvStore& store, Device& device, Stream& stream);
  // Waits for queued work, because that writes to memory of the transformer and the store.
  ~ModelRunner() override { stream_.Synchronize().IgnoreError(); }

  bool can_warm_up() const override { return transformer_.can_warm_up(); }
  absl::StatusOr<bool> weights_loaded() const override { return transformer_.weights_loaded(); }
  // First matrix products are prepared; then, with DecodeSteps::kRecorded, a pass is recorded for
  // each number of decodes; then a dummy step with a prefill and a sampling runs, so that its
  // kernels are loaded. Nothing is stored. The last part logs a summary.
  absl::StatusOr<bool> WarmUp(DecodeSteps decodes) override;

  absl::Status Forward(std::span<const Chunk> chunks, int32_t num_decodes,
                       const LayerStored& layer_stored) override;
  absl::Status Await() override;
  std::span<absl::StatusOr<SampledToken>> Sample(std::span<const Chunk> chunks) override;
  std::span<absl::StatusOr<std::vector<SampledToken>>> prompt_logprobs() override {
    return scored_;
  }
  absl::Status Evict(const Sequence& sequence) override;
  void OnPause() override {}

 private:
  struct WarmUpState {
    std::vector<int32_t> products;  // numbers of rows for which matrix products are prepared
    size_t prepared = 0;            // how many of `products` are prepared
    std::vector<int32_t> sizes;     // numbers of decodes for which a step is recorded
    size_t recorded = 0;            // how many of `sizes` are recorded
    Duration took{};
  };

  absl::Status Queue(std::span<const Chunk> chunks, int32_t num_decodes);
  absl::StatusOr<bool> WarmUpPart(DecodeSteps decodes);
  std::span<const int32_t> NextProducts();
  absl::Status RunDummyStep();
  absl::Status SampleRows();
  absl::StatusOr<std::vector<SampledToken>> Score(const Chunk& chunk, RowRange rows);
  void SampleAlone(const Chunk& chunk);

  Transformer& transformer_;
  Ops& ops_;
  KvStore& store_;
  Stream& stream_;
  const bool runs_later_;  // queued work runs after the call that queues it

  std::optional<WarmUpState> warming_up_;  // none: warming up has not begun

  // The callback of the latest Forward. Where work runs later, layers_ has the event of each layer.
  const LayerStored* layer_stored_ = nullptr;
  std::vector<absl::StatusOr<std::unique_ptr<Event>>> layers_;
  BlockCopies copies_;  // for the step that is being queued
  PromptScores scores_;
  TensorView logits_;  // of the latest Forward
  StepBatch batch_;
  std::vector<SampledToken> sampled_;
  std::vector<absl::StatusOr<SampledToken>> results_;
  std::vector<absl::StatusOr<std::vector<SampledToken>>> scored_;  // prompts, by the latest Sample
};

}  // namespace tandem
