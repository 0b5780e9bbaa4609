#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"

// Memory of GPUs that processes of this machine share: Device's AllocateShared, Share and
// OpenShared. All with the device as the calling thread's current one. Thread-safe.
namespace tandem::cuda {

// How memory of a device is offered to other processes.
enum class Sharing : uint8_t {
  kNone,
  kFiles,   // mapped_memory.h: kDeviceFile
  kTokens,  // the runtime's, where the driver has no such files: kCudaIpc
};
std::string_view NameOf(Sharing sharing);

// The best that works here, found by doing it: containers may lack what the driver says it has.
Sharing SharingOf(int device);

// RESOURCE_EXHAUSTED; UNIMPLEMENTED for kNone; FAILED_PRECONDITION where the driver fails.
absl::StatusOr<DeviceBuffer> AllocateSharedMemory(int device, Sharing sharing, size_t bytes);
// As Device::Share and OpenShared. A handle is opened by its kind, whatever this device offers.
// What was opened is freed once nothing that is queued reads it; what was allocated, while no
// thread records: that waits for the device.
absl::StatusOr<MemoryHandle> ShareMemory(std::span<const std::byte> memory);
absl::StatusOr<DeviceBuffer> OpenSharedMemory(int device, const MemoryHandle& handle);

}  // namespace tandem::cuda
