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
#include "model/transformer/forward_batch.h"
#include "model/transformer/weight_store.h"

namespace tandem {

// Called on the forward thread when K and V of `layer` are in the pool for all tokens of the batch,
// so that their blocks may be sent.
using LayerStored = std::function<void(int32_t layer)>;

// One decoder-only transformer: a straight line from token ids to logits. Owns the activations,
// which are allocated once for `max_tokens` rows and `max_logit_rows` rows of logits. A batch of
// only decodes is padded to one of a few sizes and, if the device supports graphs, runs as a graph
// that was recorded by RecordDecodes or by the second batch of that size. Thread: engine. The parts
// passed in must outlive it.
class Transformer {
 public:
  using Limits = TransformerLimits;

  // The largest number of rows whose matrix products are prepared at start, except for the largest
  // step. Larger numbers are rare enough for the backend to choose when they occur, and the bound
  // keeps the start short.
  static constexpr int32_t kPreparedRows = 2048;

  static absl::StatusOr<std::unique_ptr<Transformer>> Create(const ModelConfig& config,
                                                             WeightStore& weights, Device& device,
                                                             Ops& ops, const Limits& limits);
  ~Transformer();

  // Runs the batch; K and V go to `pool`. Returns logits [R, V] f32, valid (and writable, as
  // scratch of sampling) until the next call.
  absl::StatusOr<TensorView> Forward(Stream& stream, const ForwardBatch& batch,
                                     const KvPoolView& pool, const LayerStored& layer_stored);
  // The logits [count, V] f32 of a part of the latest batch's scored rows, at most max_logit_rows.
  // They take the place of those that Forward returned, and are valid until the next call of
  // either.
  absl::StatusOr<TensorView> Logits(Stream& stream, RowRange rows);
  // The plan for the sample_rows of the latest batch; valid until the next call of Forward.
  SamplePlan sample_plan() const;

  const Limits& limits() const;
  // Whether PrepareProducts and RecordDecodes can do ahead what forward passes would otherwise do
  // once each. False if the device records no graphs or weights may move. Both functions wait for
  // weights that are not loaded yet.
  bool can_warm_up() const;
  // Whether PrepareProducts, RecordDecodes and Forward would run without waiting for weights. An
  // error is the error of every later pass.
  absl::StatusOr<bool> weights_loaded() const;
  // The numbers of rows whose products should be prepared, in rising order: up to kPreparedRows,
  // and the maximum of a step.
  std::vector<int32_t> product_rows() const;
  // Lets the backend choose how it computes products with `rows` rows.
  absl::Status PrepareProducts(int32_t rows);
  // The sizes to which decode batches are padded, in rising order.
  std::vector<int32_t> decode_sizes() const;
  // Runs and records a pass of `size` decodes whose rows neither store nor attend to anything, so
  // that `pool` is neither read nor written. Returns when the pass has ended.
  absl::Status RecordDecodes(Stream& stream, const KvPoolView& pool, int32_t size);

 private:
  struct State;
  explicit Transformer(std::unique_ptr<State> state);
  std::unique_ptr<State> state_;
};

}  // namespace tandem
