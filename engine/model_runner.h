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

// Whether steps of decodes alone are graphs: they are not where somebody is told of each layer.
enum class DecodeSteps : uint8_t { kRecorded, kPlain };

// Turns the chunks of one step into the ragged batch of a forward pass, and its logits into tokens.
// Thread: engine. What it is made of must outlive it.
class ModelRunner {
 public:
  // `stream` is the one that `store` computes on, of `device`.
  ModelRunner(Transformer& transformer, Ops& ops, KvStore& store, const Device& device,
              Stream& stream);
  // Waits for what is queued: it writes to memory of the transformer and the store.
  ~ModelRunner() { stream_.Synchronize().IgnoreError(); }

  // Whether WarmUp has anything to do, and whether it would not wait for weights.
  bool can_warm_up() const { return transformer_.can_warm_up(); }
  absl::StatusOr<bool> weights_loaded() const { return transformer_.weights_loaded(); }
  // Does a part of what steps would otherwise do once each; whether it was the last, which logs
  // what was done. First products are prepared; then, with DecodeSteps::kRecorded, a pass of each
  // size of decodes is recorded; then a dummy step with a prefill and a sampling runs, so that their
  // kernels are loaded. Nothing of it is stored. After an error, steps do the rest when they need
  // it.
  absl::StatusOr<bool> WarmUp(DecodeSteps decodes);

  // Queues the computation of `chunks`, prefills first, then `num_decodes` of one token each. Makes
  // room for them in their tables, which the scheduler has seen to. `layer_stored`, if there is
  // one, is called for each layer once the layer's KV of these chunks is in the pool: within this
  // call where the device is the host, within Await elsewhere; it must live until then. An error is
  // the whole step's, and nothing of it is queued any more.
  absl::Status Forward(std::span<const Chunk> chunks, int32_t num_decodes,
                       const LayerStored& layer_stored);
  // Waits until it is done. An error is the whole step's.
  absl::Status Await();

  // The tokens after each chunk that wants some, in their order. Once, after a Forward of the same
  // chunks, which it awaits. An error is that token's alone.
  std::span<absl::StatusOr<SampledToken>> Sample(std::span<const Chunk> chunks);

 private:
  struct WarmUpState {
    std::vector<int32_t> products;  // by their rows, to be prepared
    size_t prepared = 0;            // of these
    std::vector<int32_t> sizes;     // of decodes, to be recorded
    size_t recorded = 0;            // of these
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
  const bool runs_later_;  // than it is queued

  std::optional<WarmUpState> warming_up_;  // once it has begun

  // Of the latest Forward, while it runs later than it was queued.
  const LayerStored* layer_stored_ = nullptr;
  std::vector<absl::StatusOr<std::unique_ptr<Event>>> layers_;  // each stored
  BlockCopies copies_;                                          // of the step being queued
  TensorView logits_;                                           // of the latest Forward
  StepBatch batch_;
  std::vector<SampledToken> sampled_;
  std::vector<absl::StatusOr<SampledToken>> results_;
};

}  // namespace tandem
