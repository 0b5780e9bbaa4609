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
  std::span<const BlockPair> copies;      // of blocks, before anything else; at most T
  int32_t num_decodes = 0;                // of the S sequences, the last ones
  // [R] rows of T whose logits are wanted, rising; one that repeats is computed once and given as
  // often, since sampling changes the logits.
  std::span<const int32_t> logit_rows;
  // [R] how they will be sampled: goes up in the step's one copy. Empty: Ops::Sample brings it.
  std::span<const SampleRow> sample_rows;
};

// Called on the forward thread when K and V of `layer` for all tokens of the batch are in the pool:
// from here on their blocks may be sent.
using LayerStored = std::function<void(int32_t layer)>;

// One decoder-only transformer, one straight line from token ids to logits. Owns the activations,
// allocated once for `max_tokens` rows and `max_logit_rows` rows of logits. A batch of decodes
// alone is filled up to one of a few sizes and, where the device can, run as a graph: one recorded
// by RecordDecodes, or else the second time that size came. Thread: engine. The parts passed in
// must outlive it.
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

  // More rows than that, but for the most that a step has, are rare enough for the backend to
  // choose when they come; the bound keeps a start short.
  static constexpr int32_t kPreparedRows = 2048;

  static absl::StatusOr<std::unique_ptr<Transformer>> Create(const ModelConfig& config,
                                                             WeightStore& weights, Device& device,
                                                             Ops& ops, const Limits& limits);
  ~Transformer();

  // Runs the batch; K and V go to `pool`. Returns logits [R, V] f32, valid (and writable, as
  // scratch of sampling) until the next call.
  absl::StatusOr<TensorView> Forward(Stream& stream, const ForwardBatch& batch,
                                     const KvPoolView& pool, const LayerStored& layer_stored);
  // Of the sample_rows of the latest batch, until the next call.
  SamplePlan sample_plan() const;

  const Limits& limits() const;
  // What passes would otherwise do once each can be done ahead, by the two functions below, unless
  // the device records nothing or weights move. These wait for weights that are not loaded yet.
  bool can_warm_up() const;
  // Whether they, and a pass, would not wait. Its error is that of every pass from now on.
  absl::StatusOr<bool> weights_loaded() const;
  // The numbers of rows whose products are worth preparing, rising: up to kPreparedRows, and as
  // many as a step has at most.
  std::vector<int32_t> product_rows() const;
  // Has the backend choose how it computes the products of so many rows.
  absl::Status PrepareProducts(int32_t rows);
  // The sizes that decodes are filled up to, rising.
  std::vector<int32_t> decode_sizes() const;
  // Runs and records a pass of `size` decodes, whose rows store nothing and see nothing: `pool` is
  // neither read nor written. Returns when it has ended.
  absl::Status RecordDecodes(Stream& stream, const KvPoolView& pool, int32_t size);

 private:
  struct State;
  explicit Transformer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tandem
