#include "kernels/cuda/memory/shared_places.h"

#include <cuda_runtime.h>
#include <fcntl.h>

#include <utility>

#include "kernels/cuda/memory/mapped_memory.h"
#include "kernels/cuda/memory/own_bytes.h"

namespace tandem::cuda {

bool SharedPlaces::Add(const std::byte* data, SharedPlace place) {
  absl::MutexLock lock(&mutex_);
  return places_.emplace(data, std::move(place)).second;
}

SharedPlace SharedPlaces::Take(const std::byte* data) {
  absl::MutexLock lock(&mutex_);
  return std::move(places_.extract(data).mapped());
}

std::optional<MemoryHandle> SharedPlaces::Find(std::span<const std::byte> memory) const {
  absl::MutexLock lock(&mutex_);
  const auto found = places_.find(memory.data());
  if (found == places_.end() || found->second.bytes != memory.size() ||
      found->second.origin != SharedPlace::Origin::kAllocated) {
    return std::nullopt;
  }
  MemoryHandle handle{.kind = found->second.kind, .bytes = memory.size()};
  if (handle.kind == MemoryHandle::Kind::kDeviceFile) {
    handle.file = UniqueFd(fcntl(found->second.file.get(), F_DUPFD_CLOEXEC, 0));
  }
  return handle;
}

SharedPlaces& AllSharedPlaces() {
  static SharedPlaces& places = *new SharedPlaces;  // buffers may outlive statics
  return places;
}

void FreeSharedPlace(std::byte* data, size_t size) {
  const SharedPlace place = AllSharedPlaces().Take(data);
  cudaSetDevice(place.device);
  // Unlike cudaFree, the calls that close or unmap memory do not wait for the device. Opened memory
  // may be closed at any time, and its reader has waited for its own stream: a wait for the whole
  // device would spoil what other threads record, and last as long as NCCL's kernels wait for their
  // peers.
  if (place.origin == SharedPlace::Origin::kAllocated) cudaDeviceSynchronize();
  if (place.kind == MemoryHandle::Kind::kDeviceFile) {
    UnmapMemory({data, place.mapped_bytes});
  } else if (place.origin == SharedPlace::Origin::kOpened) {
    cudaIpcCloseMemHandle(data);
  } else {
    cudaFree(data);
  }
  if (place.origin == SharedPlace::Origin::kAllocated) g_own_bytes -= size;
}

}  // namespace tandem::cuda
