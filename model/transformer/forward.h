#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kernels/ops.h"
#include "model/checkpoint/model_config.h"
#include "model/transformer/weight_store.h"

namespace tandem {

// The ragged batch of one step: sequences with several query rows (prefill chunks) first, then
// `num_decodes` sequences of one row each. All spans are the caller's and live through the call.
struct ForwardBatch {
  std::span<const int32_t> token_ids;     // [T]
  std::span<const int32_t> positions;     // [T]
  std::span<const int64_t> slots;         // [T] as StoreKvArgs
  std::span<const int32_t> query_starts;  // [S + 1]
  std::span<const int32_t> context_lens;  // [S], this step's tokens included
  BlockTables block_tables;               // of the S sequences
  int32_t num_decodes = 0;                // of the S sequences, the last ones
  // [R] rows of T whose logits are wanted, rising; one that repeats is computed once and given as
  // often, since sampling changes the logits.
  std::span<const int32_t> logit_rows;
};

// Called on the forward thread when K and V of `layer` for all tokens of the batch are in the pool:
// from here on their blocks may be sent.
using LayerStored = std::function<void(int32_t layer)>;

// One decoder-only transformer, one straight line from token ids to logits. Owns the activations,
// allocated once for `max_tokens` rows and `max_logit_rows` rows of logits. A batch of decodes
// alone is filled up to one of a few sizes and, where the device can, run as a graph recorded the
// second time that size came. Thread: engine. The parts passed in must outlive it.
class Transformer {
 public:
  struct Limits {
    int32_t max_tokens = 0;      // T of one step
    int32_t max_logit_rows = 0;  // R of one step
    int32_t max_sequences = 0;   // S of one step
    int32_t max_blocks_per_sequence = 0;
    int32_t max_context_tokens = 0;  // positions that a token can have
    SplitMode splits = SplitMode::kBalanced;
  };

  static absl::StatusOr<std::unique_ptr<Transformer>> Create(const ModelConfig& config,
                                                             WeightStore& weights, Device& device,
                                                             Ops& ops, const Limits& limits);
  ~Transformer();

  // Runs the batch; K and V go to `pool`. Returns logits [R, V] f32, valid (and writable, as
  // scratch of sampling) until the next call.
  absl::StatusOr<TensorView> Forward(Stream& stream, const ForwardBatch& batch,
                                     const KvPoolView& pool, const LayerStored& layer_stored);

 private:
  struct State;
  explicit Transformer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tandem
