#pragma once

#include <cuda_runtime.h>

#include <string_view>

#include "absl/status/status.h"

namespace tandem::cuda {

// The status for what a call of the CUDA runtime returned; `what` names the attempt ("rope", "copy
// of 12 bytes"). RESOURCE_EXHAUSTED where memory ran out; FAILED_PRECONDITION where this build or a
// recording does not allow it; UNAVAILABLE once the device has failed, after which CUDA refuses
// every further call of the process; INTERNAL otherwise. Clears the runtime's last error.
absl::Status ToStatus(cudaError_t error, std::string_view what);

}  // namespace tandem::cuda

// Returns from the enclosing function when `call` does not succeed.
#define RETURN_IF_CUDA_ERROR(call, what)                                        \
  do {                                                                          \
    if (const cudaError_t tandem_error_ = (call); tandem_error_ != cudaSuccess) \
      return ::tandem::cuda::ToStatus(tandem_error_, (what));                   \
  } while (false)
