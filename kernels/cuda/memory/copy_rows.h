#pragma once

#include <cstddef>

#include "absl/status/status.h"
#include "kernels/device.h"
#include "kernels/tensor.h"

namespace tandem::cuda {

// Queues copies of the rows [rows, n], which may lie apart, to `to`, where they lie without gaps.
absl::Status CopyRows(Stream& stream, const TensorView& rows, std::byte* to);

}  // namespace tandem::cuda
