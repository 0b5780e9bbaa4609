#include "kernels/op_cost.h"

#include <algorithm>

namespace tandem {
namespace {

double Elements(const TensorView& tensor) {
  return static_cast<double>(tensor.rows()) * static_cast<double>(tensor.RowElements());
}

double Bytes(const TensorView& tensor) {
  return Elements(tensor) * static_cast<double>(SizeOf(tensor.dtype));
}

double Bytes(const PackedMatrix& matrix) {
  return static_cast<double>(matrix.n) * static_cast<double>(matrix.k) *
         static_cast<double>(SizeOf(matrix.dtype));
}

}  // namespace

OpCost Cost(const EmbeddingArgs& a) {
  const double elements = Elements(a.out);
  return {elements * static_cast<double>(SizeOf(a.table.dtype)) + Bytes(a.out), 0};
}

OpCost Cost(const RmsNormArgs& a) {
  return {Bytes(a.x) + Bytes(a.weight) + Bytes(a.out), 4 * Elements(a.x)};
}

OpCost Cost(const RopeArgs& a) {
  double flops = 3 * (Elements(a.q) + Elements(a.k));
  if (a.q_norm.present()) flops += 4 * Elements(a.q);
  if (a.k_norm.present()) flops += 4 * Elements(a.k);
  return {2 * (Bytes(a.q) + Bytes(a.k)) + Bytes(a.cos) + Bytes(a.sin), flops};
}

OpCost Cost(const GemmArgs& a) {
  const double macs = static_cast<double>(a.x.rows()) * static_cast<double>(a.weight.n) *
                      static_cast<double>(a.weight.k);
  const double out_passes = a.output == GemmOutput::kAccumulate ? 2 : 1;
  return {Bytes(a.x) + Bytes(a.weight) + out_passes * Bytes(a.out), 2 * macs};
}

OpCost Cost(const SiluMulArgs& a) { return {Bytes(a.gate_up) + Bytes(a.out), 5 * Elements(a.out)}; }

OpCost Cost(const StoreKvArgs& a) {
  const auto stored = static_cast<double>(
      std::count_if(a.slots.begin(), a.slots.end(), [](int64_t slot) { return slot >= 0; }));
  const double elements = stored * 2 * a.pool.num_kv_heads * a.pool.head_dim;
  return {elements * static_cast<double>(SizeOf(DType::kF32) + SizeOf(a.pool.dtype)), 0};
}

OpCost Cost(const AttentionArgs& a) {
  double pairs = 0;
  double keys = 0;
  for (size_t s = 0; s < a.context_lens.size(); ++s) {
    const int64_t context = a.context_lens[s];
    const int64_t q_len = a.query_starts[s + 1] - a.query_starts[s];
    if (q_len == 0) continue;
    const int64_t window = a.window > 0 ? a.window : context;
    keys += static_cast<double>(std::min(context, window + q_len - 1));
    for (int64_t position = context - q_len; position < context; ++position) {
      pairs += static_cast<double>(std::min(position + 1, window));
    }
  }
  const double head_dim = a.pool.head_dim;
  const double kv_bytes =
      keys * 2 * a.pool.num_kv_heads * head_dim * static_cast<double>(SizeOf(a.pool.dtype));
  const auto num_heads = static_cast<double>(a.q.shape[1]);
  return {Bytes(a.q) + Bytes(a.out) + kv_bytes, 4 * head_dim * num_heads * pairs};
}

OpCost Cost(const CopyBlocksArgs& a) {
  const double extents = static_cast<double>(a.pairs.size()) * a.pool.num_layers;
  return {2 * extents * static_cast<double>(a.pool.ExtentBytes()), 0};
}

OpCost Cost(const MoveBlocksArgs& a) {
  return {2 * static_cast<double>(a.items.size()) * static_cast<double>(a.pool.ExtentBytes()), 0};
}

OpCost Cost(const SampleArgs& a) { return {Bytes(a.logits), Elements(a.logits)}; }

}  // namespace tandem
