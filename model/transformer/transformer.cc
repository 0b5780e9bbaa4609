#include <algorithm>
#include <cstddef>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "model/transformer/forward.h"
#include "model/transformer/layer_products.h"
#include "model/transformer/transformer_state.h"

namespace tandem {

// The logits of each distinct row are at the front of `logits`, in order. Copies them so that
// logits[i] belongs to rows[i], from the back, so that none is overwritten before it was copied.
absl::Status Transformer::State::RepeatLogits(Stream& stream, std::span<const int32_t> rows,
                                              const TensorView& logits) {
  const auto bytes = static_cast<size_t>(logits.row_stride * SizeOf(logits.dtype));
  std::byte* base = static_cast<std::byte*>(logits.data);
  size_t from = head_rows.size();
  for (size_t i = rows.size(); i-- > 0;) {
    if (i + 1 == rows.size() || rows[i] != rows[i + 1]) --from;
    if (from == i) break;
    RETURN_IF_ERROR(stream.Copy({base + i * bytes, bytes}, {base + from * bytes, bytes}));
  }
  return absl::OkStatus();
}

// Sets kept_rows to the rows of the head and the scored rows, in rising order.
void Transformer::State::KeepScored(std::span<const RowRange> scored) {
  kept_rows = head_rows;
  if (scored.empty()) return;
  for (const RowRange& range : scored) {
    for (int32_t i = 0; i < range.count; ++i) kept_rows.push_back(range.first + i);
  }
  std::sort(kept_rows.begin(), kept_rows.end());
  kept_rows.erase(std::unique(kept_rows.begin(), kept_rows.end()), kept_rows.end());
}

absl::StatusOr<TensorView> Transformer::State::Logits(Stream& stream, RowRange rows) {
  const auto found = std::lower_bound(kept_rows.begin(), kept_rows.end(), rows.first);
  const auto at = found - kept_rows.begin();
  const bool kept = rows.count > 0 && rows.count <= std::ssize(kept_rows) - at &&
                    *found == rows.first &&
                    kept_rows[at + rows.count - 1] == rows.first + rows.count - 1;
  if (!kept || rows.count > limits.max_logit_rows) {
    return Internal("logits of rows [{}, +{}): at most {} that the latest batch scored", rows.first,
                    rows.count, limits.max_logit_rows);
  }
  ASSIGN_OR_RETURN(const HeadWeights head, weights.Head());
  Activations part = activations;
  part.normed = Rows(activations.normed, at, rows.count);
  const TensorView logits = Rows(activations.logits, 0, rows.count);
  RETURN_IF_ERROR(ops.Gemm(stream, HeadProduct(head, part, logits)));
  return logits;
}

absl::StatusOr<TensorView> Transformer::State::Forward(Stream& stream, const ForwardBatch& batch,
                                                       const KvPoolView& pool,
                                                       const LayerStored& layer_stored) {
  RETURN_IF_ERROR(CheckBatch(batch));
  head_rows.assign(batch.logit_rows.begin(), batch.logit_rows.end());
  head_rows.erase(std::unique(head_rows.begin(), head_rows.end()), head_rows.end());
  KeepScored(batch.scored);
  const bool recorded = CanRecord(batch, layer_stored);
  ASSIGN_OR_RETURN(
      const StepInputs inputs,
      recorded ? stage->AddDecodes(batch, graphs.SizeFor(batch.num_decodes)) : stage->Add(batch));
  ASSIGN_OR_RETURN(const AttentionPlan chunks, PlanChunks(inputs, pool));
  masses.Begin(batch, stage->staging());
  sample_plan = ops.PlanSample(batch.sample_rows, stage->staging());
  RETURN_IF_ERROR(stage->staging().Upload(stream));
  RETURN_IF_ERROR(ops.CopyBlocks(stream, {.pool = pool, .pairs = inputs.copies}));
  if (recorded) {
    RETURN_IF_ERROR(ComputeRecorded(stream, inputs, pool));
  } else {
    const StepRows rows = {.kept = kept_rows, .head = head_rows};
    RETURN_IF_ERROR(Compute(stream, inputs, rows, chunks, pool, layer_stored));
  }
  const TensorView all = Rows(activations.logits, 0, std::ssize(batch.logit_rows));
  RETURN_IF_ERROR(RepeatLogits(stream, batch.logit_rows, all));
  return all;
}

// Preparing the products of one layer suffices, because all layers have the same shapes and
// alignment.
absl::Status Transformer::State::PrepareProducts(int32_t rows) {
  const Activations a = activations.ForRows(rows);
  ASSIGN_OR_RETURN(const LayerWeights w, weights.Layer(0));
  for (const GemmArgs& product :
       {QkvProduct(w, a), OutputProduct(w, a), GateUpProduct(w, a), DownProduct(w, a)}) {
    RETURN_IF_ERROR(ops.PrepareGemm(product));
  }
  if (rows > limits.max_logit_rows) return absl::OkStatus();
  ASSIGN_OR_RETURN(const HeadWeights head, weights.Head());
  return ops.PrepareGemm(HeadProduct(head, a, Rows(a.logits, 0, rows)));
}

Transformer::Transformer(std::unique_ptr<State> state) : state_(std::move(state)) {}
Transformer::~Transformer() = default;

absl::StatusOr<std::unique_ptr<Transformer>> Transformer::Create(const ModelConfig& config,
                                                                 WeightStore& weights,
                                                                 Device& device, Ops& ops,
                                                                 const Limits& limits) {
  TANDEM_CHECK(limits.max_tokens > 0 && limits.max_logit_rows > 0 && limits.max_sequences > 0 &&
                   limits.max_blocks_per_sequence > 0 && limits.max_context_tokens > 0,
               "a transformer without rows");
  RETURN_IF_ERROR(
      ops.Reserve({.max_tokens = limits.max_tokens,
                   .max_sequences = limits.max_sequences,
                   .max_logit_rows = limits.max_logit_rows,
                   .num_heads = config.num_heads,
                   .num_kv_heads = config.num_kv_heads,
                   .head_dim = config.head_dim,
                   .vocab_size = config.vocab_size,
                   .max_context_tokens = limits.max_context_tokens,
                   .max_total_tokens = int64_t{limits.max_sequences} * limits.max_context_tokens,
                   .splits = limits.splits,
                   .has_coded_weights = weights.has_codes()}));
  ASSIGN_OR_RETURN(RopeTable rope, RopeTable::Create(config, limits.max_context_tokens, device));
  ASSIGN_OR_RETURN(
      std::unique_ptr<InputStage> stage,
      InputStage::Create(limits, ops.PlanBytes() + AttentionMasses::StagingBytes(limits), device));
  const Activations::Sizes sizes = {.tokens = limits.max_tokens,
                                    .logit_rows = limits.max_logit_rows,
                                    .dtype = ops.ActivationType(config.dtype)};
  Carver counter(nullptr);
  Activations::Carve(config, sizes, counter);
  ASSIGN_OR_RETURN(DeviceBuffer memory, device.Allocate(counter.highest()));
  ASSIGN_OR_RETURN(KvRounder rounder, KvRounder::Create(config, device, ops));
  ASSIGN_OR_RETURN(AttentionMasses masses, AttentionMasses::Create(config, limits, device));
  Carver carver(memory.data());
  std::unique_ptr<State> state(
      new State{.config = config,
                .limits = limits,
                .weights = weights,
                .ops = ops,
                .rope = std::move(rope),
                .stage = std::move(stage),
                .graphs = DecodeGraphs(std::min(limits.max_logit_rows, limits.max_tokens)),
                .can_record = device.can_record_graphs(),
                .rounder = std::move(rounder),
                .memory = std::move(memory),
                .activations = Activations::Carve(config, sizes, carver),
                .masses = std::move(masses)});
  return std::unique_ptr<Transformer>(new Transformer(std::move(state)));
}

absl::StatusOr<TensorView> Transformer::Forward(Stream& stream, const ForwardBatch& batch,
                                                const KvPoolView& pool,
                                                const LayerStored& layer_stored) {
  return state_->Forward(stream, batch, pool, layer_stored);
}

absl::StatusOr<TensorView> Transformer::Logits(Stream& stream, RowRange rows) {
  return state_->Logits(stream, rows);
}

SamplePlan Transformer::sample_plan() const { return state_->sample_plan; }

const Transformer::Limits& Transformer::limits() const { return state_->limits; }

bool Transformer::can_warm_up() const { return state_->can_warm_up(); }

absl::StatusOr<bool> Transformer::weights_loaded() const { return state_->weights.loaded(); }

std::vector<int32_t> Transformer::product_rows() const {
  const int32_t most = state_->limits.max_tokens;
  std::vector<int32_t> rows(static_cast<size_t>(std::min(most, kPreparedRows)));
  std::iota(rows.begin(), rows.end(), 1);
  if (most > kPreparedRows) rows.push_back(most);
  return rows;
}

absl::Status Transformer::PrepareProducts(int32_t rows) { return state_->PrepareProducts(rows); }

std::vector<int32_t> Transformer::decode_sizes() const { return state_->graphs.Sizes(); }

absl::Status Transformer::RecordDecodes(Stream& stream, const KvPoolView& pool, int32_t size) {
  return state_->RecordDecodes(stream, pool, size);
}

}  // namespace tandem
