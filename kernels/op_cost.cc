#include "kernels/op_cost.h"

#include <algorithm>
#include <limits>

namespace tandem {
namespace {

double Elements(const TensorView& tensor) {
  return static_cast<double>(tensor.rows()) * static_cast<double>(tensor.RowElements());
}

double Bytes(const TensorView& tensor) {
  if (!tensor.present()) return 0;
  return Elements(tensor) * static_cast<double>(SizeOf(tensor.dtype));
}

double Bytes(const PackedMatrix& matrix) {
  return static_cast<double>(matrix.n) * static_cast<double>(matrix.k) *
         BytesPerElement(matrix.format);
}

double RowBytes(const TensorView& tensor) {
  return static_cast<double>(tensor.RowElements() * SizeOf(tensor.dtype));
}

// Bytes of K and V of one token, over all heads of the pool.
double TokenBytes(const KvPoolView& pool) {
  return static_cast<double>(pool.num_kv_heads * KvHeadBytes(pool.dtype, pool.head_dim));
}

double StoredRows(const StoreKvArgs& a) {
  return static_cast<double>(
      std::count_if(a.slots.begin(), a.slots.end(), [](int64_t slot) { return slot >= 0; }));
}

// What the last rows of each sequence see, for all sequences.
struct Seen {
  double rows = 0;
  double keys = 0;   // each key once per sequence
  double pairs = 0;  // pairs of a row and a key
};

Seen SeenBy(const AttentionArgs& a, int64_t last_rows) {
  Seen seen;
  for (size_t s = 0; s < a.context_lens.size(); ++s) {
    const int64_t context = a.context_lens[s];
    const int64_t q_len = a.query_starts[s + 1] - a.query_starts[s];
    const int64_t rows = std::min({q_len, context, last_rows});
    if (rows == 0) continue;
    const int64_t window = a.window > 0 ? a.window : context;
    seen.rows += static_cast<double>(rows);
    seen.keys += static_cast<double>(std::min(context, window + rows - 1));
    for (int64_t position = context - rows; position < context; ++position) {
      seen.pairs += static_cast<double>(std::min(position + 1, window));
    }
  }
  return seen;
}

// The bytes of K, without V, that these rows see.
double KeyBytes(const AttentionArgs& a, const Seen& seen) {
  return seen.keys * static_cast<double>(a.pool.num_kv_heads * a.pool.RowBytes(KvSide::kKeys));
}

}  // namespace

OpCost Cost(const EmbeddingArgs& a) {
  const double elements = Elements(a.out);
  return {elements * BytesPerElement(a.table.format) + Bytes(a.out), 0};
}

OpCost Cost(const RmsNormArgs& a) {
  return {Bytes(a.x) + Bytes(a.weight) + Bytes(a.out), 4 * Elements(a.x)};
}

OpCost Cost(const RopeArgs& a) {
  double flops = 3 * (Elements(a.q) + Elements(a.k));
  if (a.q_norm.present()) flops += 4 * Elements(a.q);
  if (a.k_norm.present()) flops += 4 * Elements(a.k);
  const double tables =
      static_cast<double>(a.positions.size()) * (RowBytes(a.cos) + RowBytes(a.sin));
  return {2 * (Bytes(a.q) + Bytes(a.k)) + tables, flops};
}

OpCost Cost(const GemmArgs& a) {
  const double macs = static_cast<double>(a.x.rows()) * static_cast<double>(a.weight.n) *
                      static_cast<double>(a.weight.k);
  const double out_passes = a.output == GemmOutput::kAccumulate ? 2 : 1;
  return {Bytes(a.x) + Bytes(a.weight) + out_passes * Bytes(a.out), 2 * macs};
}

OpCost Cost(const SiluMulArgs& a) { return {Bytes(a.gate_up) + Bytes(a.out), 5 * Elements(a.out)}; }

OpCost Cost(const StoreKvArgs& a) {
  const double rows = StoredRows(a);
  return {rows * (RowBytes(a.k) + RowBytes(a.v) + TokenBytes(a.pool)), 0};
}

OpCost Cost(const RopeArgs& rope, const StoreKvArgs& store) {
  const OpCost rotated = Cost(rope);
  const OpCost stored = Cost(store);
  return {rotated.bytes + stored.bytes - StoredRows(store) * RowBytes(store.k),
          rotated.flops + stored.flops};
}

OpCost Cost(const AttentionArgs& a) {
  const Seen seen = SeenBy(a, std::numeric_limits<int64_t>::max());
  const double bytes = Bytes(a.q) + Bytes(a.out) + seen.keys * TokenBytes(a.pool) + Bytes(a.lse) +
                       Bytes(a.block_mass);
  return {bytes, 4 * a.pool.head_dim * static_cast<double>(a.q.shape[1]) * seen.pairs};
}

OpCost Cost(const ColumnMassArgs& a) {
  const Seen seen = SeenBy(a.attention, a.last_rows);
  const TensorView& q = a.attention.q;
  const double bytes = seen.rows * (RowBytes(q) + RowBytes(a.attention.lse)) +
                       KeyBytes(a.attention, seen) + Bytes(a.out);
  return {bytes, 2 * a.attention.pool.head_dim * static_cast<double>(q.shape[1]) * seen.pairs};
}

OpCost Cost(const CopyBlocksArgs& a) {
  const double extents = static_cast<double>(a.pairs.size()) * a.pool.num_layers;
  return {2 * extents * static_cast<double>(a.pool.ExtentBytes()), 0};
}

OpCost Cost(const CopyTokensArgs& a) {
  const double tokens = static_cast<double>(a.to.size()) * a.pool.num_layers;
  return {2 * tokens * TokenBytes(a.pool), 0};
}

OpCost Cost(const MoveBlocksArgs& a) {
  return {2 * static_cast<double>(a.items.size()) * static_cast<double>(a.pool.ExtentBytes()), 0};
}

OpCost Cost(const ConvertKvArgs& a) {
  double tokens = 0;
  for (const KvRun& run : a.runs) tokens += run.num_tokens;
  return {tokens * (TokenBytes(a.AsSource()) + TokenBytes(a.pool)), 0};
}

OpCost Cost(const SampleArgs& a) { return {Bytes(a.logits), Elements(a.logits)}; }

}  // namespace tandem
