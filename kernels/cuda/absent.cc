#include "base/status.h"
#include "kernels/cuda/device/backend.h"

// The CUDA backend of a build without a CUDA toolkit.

namespace tandem::cuda {

absl::StatusOr<Backend> OpenBackend(int index, const BackendOptions&) { return CheckDevice(index); }

absl::Status CheckDevice(int index) {
  return Unimplemented(
      "device cuda:{}: this build has no CUDA backend: build where nvcc 12.1 or later is found, or "
      "use --device cpu",
      index);
}

std::vector<std::string> DeviceNames() { return {}; }

}  // namespace tandem::cuda
