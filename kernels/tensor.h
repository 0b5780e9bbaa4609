#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <initializer_list>

#include "base/check.h"
#include "base/dtype.h"
#include "kernels/weight_format.h"

namespace tandem {

// A view of a tensor: its memory, type and shape; owns nothing. Rows (dimension 0) may be apart by
// more than their length, so that q, k and v can be slices of one fused projection; all inner
// dimensions are contiguous. A null `data` means "absent" where an op says that a tensor is
// optional.
struct TensorView {
  static constexpr int kMaxRank = 4;

  void* data = nullptr;
  DType dtype = DType::kF32;
  int rank = 0;
  std::array<int64_t, kMaxRank> shape{};
  int64_t row_stride = 0;  // elements from one row to the next

  TensorView() = default;
  TensorView(void* data_in, DType dtype_in, std::initializer_list<int64_t> shape_in)
      : data(data_in), dtype(dtype_in), rank(static_cast<int>(shape_in.size())) {
    TANDEM_CHECK(rank <= kMaxRank, "tensor of too high a rank");
    int i = 0;
    for (int64_t extent : shape_in) shape[i++] = extent;
    row_stride = RowElements();
  }

  bool present() const { return data != nullptr; }
  int64_t rows() const { return rank == 0 ? 0 : shape[0]; }
  // Elements of one row: the product of all dimensions but the first.
  int64_t RowElements() const {
    int64_t count = 1;
    for (int i = 1; i < rank; ++i) count *= shape[i];
    return count;
  }
  bool contiguous() const { return row_stride == RowElements(); }

  TensorView WithRowStride(int64_t elements) const {
    TensorView view = *this;
    view.row_stride = elements;
    return view;
  }

  template <typename T>
  T* Row(int64_t row) const {
    return static_cast<T*>(data) + row * row_stride;
  }
};

// A weight [n, k] in the backend's own order, made once at load by Ops::PackWeight and read by
// Ops::Gemm and Ops::Embedding. Owns nothing; `data` has Ops::PackedBytes(format, n, k) bytes.
struct PackedMatrix {
  std::byte* data = nullptr;
  WeightFormat format = DType::kBF16;
  int64_t n = 0;  // outputs
  int64_t k = 0;  // inputs

  bool present() const { return data != nullptr; }
};

}  // namespace tandem
