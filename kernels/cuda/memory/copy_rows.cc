#include "kernels/cuda/memory/copy_rows.h"

#include <cstdint>

#include "base/status.h"

namespace tandem::cuda {

absl::Status CopyRows(Stream& stream, const TensorView& rows, std::byte* to) {
  const int64_t rows_at_once = rows.contiguous() ? rows.rows() : 1;
  const auto bytes = static_cast<size_t>(rows_at_once * rows.shape[1] * SizeOf(rows.dtype));
  const int64_t stride = rows.row_stride * SizeOf(rows.dtype);
  for (int64_t row = 0; row < rows.rows(); row += rows_at_once) {
    const auto* from = static_cast<const std::byte*>(rows.data) + row * stride;
    RETURN_IF_ERROR(stream.Copy({to, bytes}, {from, bytes}));
    to += bytes;
  }
  return absl::OkStatus();
}

}  // namespace tandem::cuda
