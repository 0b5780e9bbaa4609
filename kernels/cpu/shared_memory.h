#pragma once

#include <cstddef>
#include <span>

#include "absl/status/statusor.h"
#include "kernels/device.h"

namespace tandem {

// Host memory in a file without a name, sealed so that others can map it for reading alone and no
// process can truncate it. As the calls of Device of the same names. Thread-safe.
absl::StatusOr<DeviceBuffer> AllocateSharedHostMemory(size_t bytes);
absl::StatusOr<MemoryHandle> ShareHostMemory(std::span<const std::byte> memory);
absl::StatusOr<DeviceBuffer> OpenSharedHostMemory(const MemoryHandle& handle);

}  // namespace tandem
