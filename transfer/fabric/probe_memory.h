#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "kernels/device.h"

namespace tandem {

// Allocates what probes are sent from or land in. It is memory of the device that holds KV, so that
// a probe travels as KV does; a null device means the host's memory. With `shared` other processes
// can open it. Its bytes are not all the same. Errors as Device::Allocate and Stream::Copy.
absl::StatusOr<DeviceBuffer> AllocateProbeMemory(Device* device, size_t size, bool shared);

}  // namespace tandem
