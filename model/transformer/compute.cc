#include <cmath>
#include <cstddef>
#include <cstdint>

#include "base/status.h"
#include "model/transformer/layer_products.h"
#include "model/transformer/transformer_state.h"

namespace tandem {
namespace {

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

}  // namespace

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

}  // namespace tandem
