#include "model/transformer/forward.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <numeric>
#include <utility>

#include "base/check.h"
#include "base/status.h"
#include "model/transformer/activations.h"
#include "model/transformer/attention_masses.h"
#include "model/transformer/decode_graphs.h"
#include "model/transformer/rope_table.h"
#include "model/transformer/step_inputs.h"

namespace tandem {
namespace {

// The attention plans of a step's chunks and decodes, which are the same in every layer.
struct AttentionPlans {
  AttentionPlan chunks;
  AttentionPlan decodes;
};

// The rows of a step that are still computed after the attention of the last layer, in rising
// order.
struct StepRows {
  std::span<const int32_t> kept;  // rows whose final residual is computed
  std::span<const int32_t> head;  // those of `kept` whose logits are computed in the same pass
};

// Restricts `args` of the whole batch to one part of it.
AttentionArgs PartOf(const AttentionArgs& args, const AttentionInputs& inputs,
                     const AttentionPlan& plan) {
  AttentionArgs part = args;
  part.q = Rows(args.q, inputs.first_row, inputs.num_rows);
  part.out = Rows(args.out, inputs.first_row, inputs.num_rows);
  part.query_starts = inputs.query_starts;
  part.context_lens = inputs.context_lens;
  part.block_tables = inputs.block_tables;
  part.plan = plan;
  return part;
}

// The matrix products of a layer and of the head, used both for preparing and for computing.
GemmArgs QkvProduct(const LayerWeights& w, const Activations& a) {
  return {.x = a.normed, .weight = w.qkv, .bias = w.qkv_bias, .out = a.qkv};
}
GemmArgs OutputProduct(const LayerWeights& w, const Activations& a) {
  return {.x = a.attention,
          .weight = w.output,
          .bias = w.output_bias,
          .out = a.x,
          .output = GemmOutput::kAccumulate};
}
GemmArgs GateUpProduct(const LayerWeights& w, const Activations& a) {
  return {.x = a.normed, .weight = w.gate_up, .out = a.gate_up};
}
GemmArgs DownProduct(const LayerWeights& w, const Activations& a) {
  return {.x = a.gated, .weight = w.down, .out = a.x, .output = GemmOutput::kAccumulate};
}
GemmArgs HeadProduct(const HeadWeights& w, const Activations& a, const TensorView& logits) {
  return {.x = a.normed, .weight = w.lm_head, .out = logits};
}

}  // namespace

struct Transformer::State {
  ModelConfig config;
  Limits limits;
  WeightStore& weights;
  Ops& ops;
  RopeTable rope;
  std::unique_ptr<InputStage> stage;
  DecodeGraphs graphs;
  bool can_record;
  KvRounder rounder;
  DeviceBuffer memory;
  Activations activations;         // views of `memory` with the most rows
  std::vector<int32_t> head_rows;  // the distinct logit rows of this step
  std::vector<int32_t> kept_rows;  // head_rows and the scored rows, in rising order
  SamplePlan sample_plan;          // the sampling plan of this step
  AttentionMasses masses;          // how much attention tokens get in this step

  absl::Status CheckBatch(const ForwardBatch& batch) const;
  AttentionArgs AttentionOf(const Activations& a, const KvPoolView& pool, int32_t layer) const;
  absl::StatusOr<AttentionPlan> PlanChunks(const StepInputs& inputs, const KvPoolView& pool);
  absl::Status Qkv(Stream& stream, const LayerWeights& w, const StepInputs& inputs,
                   const AttentionArgs& attention, const Activations& a);
  absl::Status Attention(Stream& stream, const StepInputs& inputs, const AttentionArgs& args,
                         const AttentionPlans& plans);
  absl::Status KeepRows(Stream& stream, std::span<const int32_t> rows, const Activations& a);
  absl::Status RepeatLogits(Stream& stream, std::span<const int32_t> rows,
                            const TensorView& logits);
  absl::Status OutputAndMlp(Stream& stream, const LayerWeights& w, const Activations& a);
  absl::Status Head(Stream& stream, const StepRows& rows, const Activations& a);
  absl::Status Compute(Stream& stream, const StepInputs& inputs, const StepRows& rows,
                       const AttentionPlan& chunks, const KvPoolView& pool,
                       const LayerStored& layer_stored);
  void KeepScored(std::span<const RowRange> scored);
  bool CanRecord(const ForwardBatch& batch, const LayerStored& layer_stored) const;
  absl::Status ComputeRecorded(Stream& stream, const StepInputs& inputs, const KvPoolView& pool);
  absl::Status PrepareProducts(int32_t rows);
  absl::Status RecordDecodes(Stream& stream, const KvPoolView& pool, int32_t rows);
  bool can_warm_up() const { return can_record && weights.addresses_are_fixed(); }
  absl::StatusOr<TensorView> Forward(Stream& stream, const ForwardBatch& batch,
                                     const KvPoolView& pool, const LayerStored& layer_stored);
  absl::StatusOr<TensorView> Logits(Stream& stream, RowRange rows);
};

// Checks a batch. The engine builds it, so an error here is a bug. The error is returned instead of
// ending the process, because it affects only the requests of this batch.
absl::Status Transformer::State::CheckBatch(const ForwardBatch& batch) const {
  const auto rows = static_cast<int64_t>(batch.token_ids.size());
  const auto sequences = static_cast<int64_t>(batch.context_lens.size());
  if (rows < 1 || rows > limits.max_tokens) {
    return Internal("a step of {} tokens; this transformer takes 1 to {}", rows, limits.max_tokens);
  }
  if (std::ssize(batch.logit_rows) > limits.max_logit_rows) {
    return Internal("{} rows of logits; at most {}", batch.logit_rows.size(),
                    limits.max_logit_rows);
  }
  if (sequences > limits.max_sequences ||
      std::ssize(batch.block_tables.ids.host()) >
          int64_t{limits.max_sequences} * limits.max_blocks_per_sequence) {
    return Internal("{} sequences with {} blocks; at most {} of up to {}", sequences,
                    batch.block_tables.ids.size(), limits.max_sequences,
                    limits.max_blocks_per_sequence);
  }
  if (std::ssize(batch.copies) > rows) {
    return Internal("{} blocks to copy for {} tokens", batch.copies.size(), rows);
  }
  for (const RoundedRows& range : batch.rounded) {
    if (range.first_row >= 0 && range.num_rows >= 0 && range.num_rows <= rows - range.first_row) {
      continue;
    }
    return Internal("rows [{}, +{}) to round of {}", range.first_row, range.num_rows, rows);
  }
  int64_t free_from = 0;
  for (const RowRange& range : batch.scored) {
    if (range.first < free_from || range.count < 0 || range.count > rows - range.first) {
      return Internal("rows [{}, +{}) to score of {}: they must rise and be apart", range.first,
                      range.count, rows);
    }
    free_from = int64_t{range.first} + range.count;
  }
  if (!batch.sample_rows.empty() && batch.sample_rows.size() != batch.logit_rows.size()) {
    return Internal("{} rows to sample of {} rows of logits", batch.sample_rows.size(),
                    batch.logit_rows.size());
  }
  for (size_t i = 0; i < batch.logit_rows.size(); ++i) {
    const int64_t floor = i == 0 ? 0 : batch.logit_rows[i - 1];
    if (batch.logit_rows[i] < floor || batch.logit_rows[i] >= rows) {
      return Internal("logit_rows[{}] is {}: they must rise from 0 to {}", i, batch.logit_rows[i],
                      rows - 1);
    }
  }
  if (std::ssize(batch.positions) != rows || std::ssize(batch.slots) != rows ||
      std::ssize(batch.query_starts) != sequences + 1 || batch.query_starts.back() != rows ||
      batch.num_decodes < 0 || batch.num_decodes > sequences ||
      batch.block_tables.num_sequences() != sequences ||
      batch.query_starts[sequences - batch.num_decodes] != rows - batch.num_decodes) {
    return Internal(
        "the parts of a step's batch do not fit together: {} tokens, {} positions, {} "
        "slots, {} sequences, {} decodes",
        rows, batch.positions.size(), batch.slots.size(), sequences, batch.num_decodes);
  }
  return absl::OkStatus();
}

AttentionArgs Transformer::State::AttentionOf(const Activations& a, const KvPoolView& pool,
                                              int32_t layer) const {
  return {.q = Heads(a.qkv, 0, config.num_heads, config.head_dim),
          .pool = pool,
          .layer = layer,
          .out = Heads(a.attention, 0, config.num_heads, config.head_dim),
          .scale = static_cast<float>(1 / std::sqrt(static_cast<double>(config.head_dim))),
          .window = config.sliding_window,
          .splits = limits.splits};
}

// Plans the attention of the chunks. Must run before the upload of the step's arrays, which
// includes the plan.
absl::StatusOr<AttentionPlan> Transformer::State::PlanChunks(const StepInputs& inputs,
                                                             const KvPoolView& pool) {
  if (inputs.chunks.num_rows == 0) return AttentionPlan();
  const AttentionArgs args = AttentionOf(activations.ForRows(inputs.num_rows), pool, 0);
  return ops.PlanPrefill(PartOf(args, inputs.chunks, {}), stage->staging());
}

// Computes normed x, then q, k and v, applies RoPE, and stores k and v in the pool.
absl::Status Transformer::State::Qkv(Stream& stream, const LayerWeights& w,
                                     const StepInputs& inputs, const AttentionArgs& attention,
                                     const Activations& a) {
  const int64_t heads = config.num_heads;
  const int64_t kv_heads = config.num_kv_heads;
  const int64_t dim = config.head_dim;
  RETURN_IF_ERROR(ops.RmsNorm(
      stream, {.x = a.x, .weight = w.attention_norm, .out = a.normed, .eps = config.rms_norm_eps}));
  RETURN_IF_ERROR(ops.Gemm(stream, QkvProduct(w, a)));
  const StoreKvArgs store = {.k = Heads(a.qkv, heads * dim, kv_heads, dim),
                             .v = Heads(a.qkv, (heads + kv_heads) * dim, kv_heads, dim),
                             .slots = inputs.slots,
                             .pool = attention.pool,
                             .layer = attention.layer};
  RETURN_IF_ERROR(ops.RopeStoreKv(stream,
                                  {.q = attention.q,
                                   .k = store.k,
                                   .positions = inputs.positions,
                                   .cos = rope.cos(),
                                   .sin = rope.sin(),
                                   .q_norm = w.q_norm,
                                   .k_norm = w.k_norm,
                                   .norm_eps = config.rms_norm_eps},
                                  store));
  return rounder.Round(stream, inputs.rounded, store);
}

// The attention of one layer. The leading rows belong to chunks, the others to decodes.
absl::Status Transformer::State::Attention(Stream& stream, const StepInputs& inputs,
                                           const AttentionArgs& args, const AttentionPlans& plans) {
  if (inputs.chunks.num_rows > 0) {
    AttentionArgs chunks = PartOf(args, inputs.chunks, plans.chunks);
    chunks.lse = masses.Lse(inputs.chunks.num_rows);
    RETURN_IF_ERROR(ops.AttentionPrefill(stream, chunks));
    RETURN_IF_ERROR(masses.Queue(stream, ops, chunks));
  }
  if (inputs.decodes.num_rows == 0) return absl::OkStatus();
  return ops.AttentionDecode(stream, PartOf(args, inputs.decodes, plans.decodes));
}

// Moves `rows` of the residual stream and of the attention output to the front. Adjacent rows are
// moved together as long as source and target do not overlap.
absl::Status Transformer::State::KeepRows(Stream& stream, std::span<const int32_t> rows,
                                          const Activations& a) {
  for (const TensorView& matrix : {a.x, a.attention}) {
    const auto bytes = static_cast<size_t>(matrix.row_stride * SizeOf(matrix.dtype));
    std::byte* base = static_cast<std::byte*>(matrix.data);
    for (size_t i = 0, count = 1; i < rows.size(); i += count, count = 1) {
      const auto row = static_cast<size_t>(rows[i]);
      if (row == i) continue;
      while (count < row - i && i + count < rows.size() &&
             static_cast<size_t>(rows[i + count]) == row + count) {
        ++count;
      }
      RETURN_IF_ERROR(
          stream.Copy({base + i * bytes, count * bytes}, {base + row * bytes, count * bytes}));
    }
  }
  return absl::OkStatus();
}

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

// x += output(attention); x += down(silu(gate(norm x)) * up(norm x)).
absl::Status Transformer::State::OutputAndMlp(Stream& stream, const LayerWeights& w,
                                              const Activations& a) {
  RETURN_IF_ERROR(ops.Gemm(stream, OutputProduct(w, a)));
  RETURN_IF_ERROR(ops.RmsNorm(
      stream, {.x = a.x, .weight = w.mlp_norm, .out = a.normed, .eps = config.rms_norm_eps}));
  RETURN_IF_ERROR(ops.Gemm(stream, GateUpProduct(w, a)));
  RETURN_IF_ERROR(ops.SiluMul(stream, {.gate_up = a.gate_up, .out = a.gated}));
  return ops.Gemm(stream, DownProduct(w, a));
}

// Computes the logits of the rows of the head from the kept rows, which are at the front of `a`.
// Rows of the head that lie side by side there share one matrix product; unless rows are scored,
// these are all.
absl::Status Transformer::State::Head(Stream& stream, const StepRows& rows, const Activations& a) {
  ASSIGN_OR_RETURN(const HeadWeights head, weights.Head());
  RETURN_IF_ERROR(ops.RmsNorm(
      stream, {.x = a.x, .weight = head.final_norm, .out = a.normed, .eps = config.rms_norm_eps}));
  size_t at = 0;
  for (size_t i = 0, count = 1; i < rows.head.size(); i += count, at += count, count = 1) {
    while (rows.kept[at] != rows.head[i]) ++at;
    while (i + count < rows.head.size() && rows.kept[at + count] == rows.head[i + count]) ++count;
    const auto num_rows = static_cast<int64_t>(count);
    Activations part = a;
    part.normed = Rows(a.normed, static_cast<int64_t>(at), num_rows);
    const TensorView logits = Rows(a.logits, static_cast<int64_t>(i), num_rows);
    RETURN_IF_ERROR(ops.Gemm(stream, HeadProduct(head, part, logits)));
  }
  return absl::OkStatus();
}

// Computes everything from token ids to the logits of `rows.head`, which end up in order at the
// front of the logits.
absl::Status Transformer::State::Compute(Stream& stream, const StepInputs& inputs,
                                         const StepRows& rows, const AttentionPlan& chunks,
                                         const KvPoolView& pool, const LayerStored& layer_stored) {
  Activations a = activations.ForRows(inputs.num_rows);
  ASSIGN_OR_RETURN(const PackedMatrix embedding, weights.Embedding());
  RETURN_IF_ERROR(
      ops.Embedding(stream, {.token_ids = inputs.token_ids, .table = embedding, .out = a.x}));
  AttentionPlans plans = {.chunks = chunks};
  if (inputs.decodes.num_rows > 0) {
    const AttentionArgs args = AttentionOf(a, pool, 0);
    ASSIGN_OR_RETURN(plans.decodes, ops.PlanDecode(stream, PartOf(args, inputs.decodes, {})));
  }

  const auto kept = static_cast<int64_t>(rows.kept.size());
  for (int32_t layer = 0; layer < config.num_layers; ++layer) {
    ASSIGN_OR_RETURN(const LayerWeights w, weights.Layer(layer));
    const AttentionArgs attention = AttentionOf(a, pool, layer);
    RETURN_IF_ERROR(Qkv(stream, w, inputs, attention, a));
    if (layer_stored) layer_stored(layer);
    // After the KV of the last layer is stored, only the rows whose logits are needed matter, and
    // the attention of rows that rank tokens for eviction.
    const bool last = layer + 1 == config.num_layers;
    if (last && kept == 0 && !masses.wanted()) return absl::OkStatus();
    RETURN_IF_ERROR(Attention(stream, inputs, attention, plans));
    if (last && kept == 0) return absl::OkStatus();
    if (last && kept < inputs.num_rows) {
      RETURN_IF_ERROR(KeepRows(stream, rows.kept, a));
      a = activations.ForRows(kept);
    }
    RETURN_IF_ERROR(OutputAndMlp(stream, w, a));
  }
  return Head(stream, rows, a);
}

// Whether a batch can run as a graph: only decodes, each with logits, and no callback in between.
bool Transformer::State::CanRecord(const ForwardBatch& batch,
                                   const LayerStored& layer_stored) const {
  return can_record && !layer_stored && weights.addresses_are_fixed() &&
         std::ssize(batch.token_ids) == batch.num_decodes &&
         head_rows.size() == batch.token_ids.size() &&
         graphs.SizeFor(batch.num_decodes) <= limits.max_logit_rows;
}

absl::Status Transformer::State::ComputeRecorded(Stream& stream, const StepInputs& inputs,
                                                 const KvPoolView& pool) {
  const auto size = static_cast<int32_t>(inputs.num_rows);
  DecodeGraphs::Entry& entry = graphs.For(size, pool.data);
  // Row i of the logits belongs to row i of the batch, because every row is a decode with logits.
  const std::span<const int32_t> all = inputs.decodes.query_starts.host().first(size);
  const StepRows rows = {.kept = all, .head = all};
  if (!std::exchange(entry.warm, true)) return Compute(stream, inputs, rows, {}, pool, nullptr);
  if (entry.graph == nullptr) {
    RETURN_IF_ERROR(stream.BeginRecording());
    const absl::Status computed = Compute(stream, inputs, rows, {}, pool, nullptr);
    absl::StatusOr<std::unique_ptr<Graph>> graph = stream.EndRecording();
    RETURN_IF_ERROR(computed);
    ASSIGN_OR_RETURN(entry.graph, std::move(graph));
  }
  return stream.Launch(*entry.graph);
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

// Runs the pass twice: the first run is not recorded, the second one is.
absl::Status Transformer::State::RecordDecodes(Stream& stream, const KvPoolView& pool,
                                               int32_t rows) {
  const auto count = static_cast<size_t>(rows);
  const std::vector<int32_t> zeros(count + 1);
  const std::vector<int64_t> not_stored(count, -1);
  std::vector<int32_t> rising(count + 1);
  std::iota(rising.begin(), rising.end(), 0);
  const std::span<const int32_t> none(zeros.data(), count);
  const ForwardBatch batch = {.token_ids = none,
                              .positions = none,
                              .slots = not_stored,
                              .query_starts = rising,
                              .context_lens = none,
                              .block_tables = {.ids = {}, .starts = zeros},
                              .num_decodes = rows,
                              .logit_rows = std::span(rising).first(count)};
  for (int pass = 0; pass < 2; ++pass) {
    RETURN_IF_ERROR(Forward(stream, batch, pool, nullptr).status());
  }
  return stream.Synchronize();
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
