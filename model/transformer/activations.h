#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/tensor.h"
#include "model/checkpoint/model_config.h"

namespace tandem {

// Allocates matrices one after the other from a buffer. Without a buffer it only counts bytes.
class Carver {
 public:
  explicit Carver(std::byte* memory) : memory_(memory) {}

  TensorView Take(DType dtype, int64_t rows, int64_t columns) {
    constexpr int64_t kAlignment = 256;
    const int64_t offset = used_;
    used_ += (rows * columns * SizeOf(dtype) + kAlignment - 1) / kAlignment * kAlignment;
    highest_ = std::max(highest_, used_);
    return TensorView(memory_ == nullptr ? nullptr : memory_ + offset, dtype, {rows, columns});
  }

  int64_t used() const { return used_; }
  // Returns to an earlier used(): later matrices share memory with those taken since then.
  void Rewind(int64_t used) { used_ = used; }
  int64_t highest() const { return highest_; }

 private:
  std::byte* memory_;
  int64_t used_ = 0;
  int64_t highest_ = 0;
};

// The intermediate results of a step with T rows and R rows of logits. The residual stream and the
// logits are f32, the others have the type that the backend computes in. Attention and MLP are
// never live at the same time, so their matrices share memory.
struct Activations {
  TensorView x;          // [T, H] f32, the residual stream
  TensorView normed;     // [T, H]
  TensorView logits;     // [R, V] f32
  TensorView qkv;        // [T, (Hq + 2 Hkv) D]
  TensorView attention;  // [T, Hq D]
  TensorView gate_up;    // [T, 2F]
  TensorView gated;      // [T, F]

  struct Sizes {
    int64_t tokens = 0;      // T
    int64_t logit_rows = 0;  // R
    DType dtype = DType::kF32;
  };

  static Activations Carve(const ModelConfig& config, const Sizes& sizes, Carver& carver);
  // Views of the same memory with the number of rows of one step.
  Activations ForRows(int64_t rows) const;
};

// Rows [begin, begin + count) of `view`.
TensorView Rows(const TensorView& view, int64_t begin, int64_t count);

// Columns [begin, begin + heads * head_dim) of a [T, columns] matrix, as [T, heads, head_dim].
TensorView Heads(const TensorView& matrix, int64_t begin, int64_t heads, int64_t head_dim);

}  // namespace tandem
