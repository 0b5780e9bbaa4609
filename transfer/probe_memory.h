#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "kernels/device.h"

namespace tandem {

// What probes are sent from or land in: memory of the device where KV lies, so that they take the
// way that KV takes; null: of the host. `shared`: other processes can open it. Filled with bytes
// that are not all the same. Errors as Device::Allocate and Stream::Copy.
absl::StatusOr<DeviceBuffer> AllocateProbeMemory(Device* device, size_t size, bool shared);

}  // namespace tandem
