#include "model/transformer/activations.h"

namespace tandem {

Activations Activations::Carve(const ModelConfig& config, const Sizes& sizes, Carver& carver) {
  const int64_t q = int64_t{config.num_heads} * config.head_dim;
  const int64_t kv = int64_t{config.num_kv_heads} * config.head_dim;
  const int64_t mlp = config.intermediate_size;
  Activations a;
  a.x = carver.Take(DType::kF32, sizes.tokens, config.hidden_size);
  a.normed = carver.Take(sizes.dtype, sizes.tokens, config.hidden_size);
  a.logits = carver.Take(DType::kF32, sizes.logit_rows, config.vocab_size);
  const int64_t shared = carver.used();
  a.qkv = carver.Take(sizes.dtype, sizes.tokens, q + 2 * kv);
  a.attention = carver.Take(sizes.dtype, sizes.tokens, q);
  carver.Rewind(shared);
  a.gate_up = carver.Take(sizes.dtype, sizes.tokens, 2 * mlp);
  a.gated = carver.Take(sizes.dtype, sizes.tokens, mlp);
  return a;
}

Activations Activations::ForRows(int64_t rows) const {
  Activations a = *this;
  for (TensorView* view : {&a.x, &a.normed, &a.qkv, &a.attention, &a.gate_up, &a.gated}) {
    view->shape[0] = rows;
  }
  return a;
}

TensorView Rows(const TensorView& view, int64_t begin, int64_t count) {
  TensorView rows = view;
  rows.data = static_cast<std::byte*>(view.data) + begin * view.row_stride * SizeOf(view.dtype);
  rows.shape[0] = count;
  return rows;
}

TensorView Heads(const TensorView& matrix, int64_t begin, int64_t heads, int64_t head_dim) {
  std::byte* data = static_cast<std::byte*>(matrix.data) + begin * SizeOf(matrix.dtype);
  return TensorView(data, matrix.dtype, {matrix.rows(), heads, head_dim})
      .WithRowStride(matrix.row_stride);
}

}  // namespace tandem
