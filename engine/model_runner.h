#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"
#include "engine/sequence.h"
#include "engine/step_batch.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "kvstore/kv_store.h"
#include "model/transformer/forward.h"

namespace tandem {

// Whether steps that consist of decodes alone run as recorded graphs. They cannot when a callback
// is called for each layer.
enum class DecodeSteps : uint8_t { kRecorded, kPlain };

// Turns the chunks of one step into the ragged batch of a forward pass, and its logits into tokens.
// Thread: engine. Everything that the constructor takes must outlive it.
class ModelRunner {
 public:
  // `stream` is a stream of `device`, the one that `store` computes on.
  ModelRunner(Transformer& transformer, Ops& ops, KvStore& store, const Device& device,
              Stream& stream);
  // Waits for queued work, because it writes to memory of the transformer and the store.
  ~ModelRunner() { stream_.Synchronize().IgnoreError(); }

  // Whether WarmUp has anything to do, and whether it can run without waiting for weights.
  bool can_warm_up() const { return transformer_.can_warm_up(); }
  absl::StatusOr<bool> weights_loaded() const { return transformer_.weights_loaded(); }
  // Does a part of the work that the first steps would otherwise do, and returns whether it was the
  // last part, which logs a summary. First products are prepared; then, with
  // DecodeSteps::kRecorded, a pass of each size of decodes is recorded; then a dummy step with a
  // prefill and a sampling runs, so that their kernels are loaded. Nothing of it is stored. After
  // an error, steps do the rest when they need it.
  absl::StatusOr<bool> WarmUp(DecodeSteps decodes);

  // Queues the computation of `chunks`, prefills first, then `num_decodes` of one token each. Makes
  // room for them in their tables, which the scheduler has seen to. `layer_stored`, if there is
  // one, is called for each layer once the layer's KV of these chunks is in the pool: within this
  // call where the device is the host, within Await elsewhere; it must live until then. An error is
  // the whole step's, and nothing of it is queued any more.
  absl::Status Forward(std::span<const Chunk> chunks, int32_t num_decodes,
                       const LayerStored& layer_stored);
  // Waits until the computation is done. An error concerns the whole step.
  absl::Status Await();

  // The tokens after each chunk that wants some, in their order. Once, after a Forward of the same
  // chunks, which it awaits. An error is that token's alone.
  std::span<absl::StatusOr<SampledToken>> Sample(std::span<const Chunk> chunks);

 private:
  struct WarmUpState {
    std::vector<int32_t> products;  // numbers of rows for which matrix products are prepared
    size_t prepared = 0;            // how many of these are prepared
    std::vector<int32_t> sizes;     // numbers of decodes for which a step is recorded
    size_t recorded = 0;            // how many of these are recorded
    Duration took{};
  };

  absl::Status Queue(std::span<const Chunk> chunks, int32_t num_decodes);
  absl::StatusOr<bool> WarmUpPart(DecodeSteps decodes);
  std::span<const int32_t> NextProducts();
  absl::Status RunDummyStep();
  absl::Status MakeRoom(std::span<const Chunk> chunks);
  absl::Status SampleRows();
  void SampleAlone(const Chunk& chunk);

  Transformer& transformer_;
  Ops& ops_;
  KvStore& store_;
  Stream& stream_;
  const bool runs_later_;  // queued work runs after the call that queues it

  std::optional<WarmUpState> warming_up_;  // once it has begun

  // The callback of the latest Forward, and the event of each layer, where work runs later.
  const LayerStored* layer_stored_ = nullptr;
  std::vector<absl::StatusOr<std::unique_ptr<Event>>> layers_;
  BlockCopies copies_;  // for the step that is being queued
  TensorView logits_;   // of the latest Forward
  StepBatch batch_;
  std::vector<SampledToken> sampled_;
  std::vector<absl::StatusOr<SampledToken>> results_;
};

}  // namespace tandem
