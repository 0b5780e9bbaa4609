#include "base/status.h"
#include "transfer/media/nccl/nccl_medium.h"

// Stands in for the NCCL medium in a build that found no header of NCCL.

namespace tandem {

absl::StatusOr<std::unique_ptr<Medium>> OpenNcclMedium(Device& device, const NcclOptions&) {
  return FailedPrecondition(
      "device {}: this build has no NCCL: build where nvcc 12.1 or later and nccl.h (libnccl-dev) "
      "are found, or use another KV transport",
      device.name());
}

size_t NcclDeviceBytes(const NcclOptions&) { return 0; }

}  // namespace tandem
