#pragma once

#include <cstddef>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "kernels/device.h"

namespace tandem {

// Makes shared memory of `bytes` bytes. Every page exists and the size is sealed, so that no
// process that has the memory can take pages away from another. UNAVAILABLE with the system's
// message.
absl::StatusOr<UniqueFd> NewSharedMemory(size_t bytes);

// Maps all of `memory` until the buffer is destroyed. It is writable at both ends, since a GPU cannot be given pages that its
// process may only read (Device::RegisterHost). UNAVAILABLE when that fails.
absl::StatusOr<DeviceBuffer> MapShared(const UniqueFd& memory, size_t bytes);

// Maps all of `memory`, which a peer has sent. UNAVAILABLE when that fails; FAILED_PRECONDITION
// when its size is not `bytes` or is not sealed, because reading it could then end this process.
absl::StatusOr<DeviceBuffer> MapPeerMemory(const UniqueFd& memory, size_t bytes);

}  // namespace tandem
