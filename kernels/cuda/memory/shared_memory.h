#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"

// GPU memory that processes of this machine share: Device's AllocateShared, Share and OpenShared.
// In all calls the device must be the calling thread's current one. Thread-safe.
namespace tandem::cuda {

// How memory of a device is offered to other processes.
enum class Sharing : uint8_t {
  kNone,
  kFiles,   // as files (mapped_memory.h), Kind::kDeviceFile
  kTokens,  // as IPC tokens of the CUDA runtime, Kind::kCudaIpc, without driver support for files
};
std::string_view NameOf(Sharing sharing);

// The best way that works on the device, found by trying: containers may lack what the driver says
// it has.
Sharing SharingOf(int device);

// Allocates memory to share. RESOURCE_EXHAUSTED; UNIMPLEMENTED for kNone; FAILED_PRECONDITION where
// the driver fails.
absl::StatusOr<DeviceBuffer> AllocateSharedMemory(int device, Sharing sharing, size_t bytes);
// As Device::Share and OpenShared. A handle is opened by its kind, whatever this device offers. A
// buffer that was opened may be freed once nothing queued reads it; one that was allocated, only
// while no thread records, since freeing it waits for the device.
absl::StatusOr<MemoryHandle> ShareMemory(std::span<const std::byte> memory);
absl::StatusOr<DeviceBuffer> OpenSharedMemory(int device, const MemoryHandle& handle);

}  // namespace tandem::cuda
