#pragma once

#include <cstddef>
#include <span>

#include "absl/status/statusor.h"
#include "kernels/device.h"

namespace tandem {

// Memory of the host in a file without a name, sealed so that others can map it for reading alone
// and no process can take pages of it away. As Device's calls of the same names. Thread-safe.
absl::StatusOr<DeviceBuffer> AllocateSharedHostMemory(size_t bytes);
absl::StatusOr<MemoryHandle> ShareHostMemory(std::span<const std::byte> memory);
absl::StatusOr<DeviceBuffer> OpenSharedHostMemory(const MemoryHandle& handle);

}  // namespace tandem
