// CudaStream's CopyAll and HashAll: extents in batches, as many as a launch takes.
#include <algorithm>

#include "base/status.h"
#include "kernels/cuda/device/cuda_status.h"
#include "kernels/cuda/device/stream.h"
#include "kernels/cuda/memory/extents.h"
#include "kernels/extent_checks.h"

namespace tandem::cuda {
namespace {

// Checks that the device can reach `hashes`, where the kernel writes: an address out of its reach
// would destroy the CUDA context.
absl::Status CheckReachable(std::span<const uint64_t> hashes) {
  if (hashes.empty()) return absl::OkStatus();
  cudaPointerAttributes attributes = {};
  RETURN_IF_CUDA_ERROR(cudaPointerGetAttributes(&attributes, hashes.data()), "look up hashes");
  if (attributes.type == cudaMemoryTypeHost) return absl::OkStatus();
  return InvalidArgument("hashes at {}: they must lie in memory of AllocateHost",
                         static_cast<const void*>(hashes.data()));
}

// The path of an extent, by which a launch's size is chosen: the extents of one call go from one
// memory to one other, so that the first of a launch speaks for all.
absl::StatusOr<ExtentPath> PathOf(const DeviceExtent& extent) {
  for (const std::byte* place : {extent.from, static_cast<const std::byte*>(extent.to)}) {
    if (place == nullptr) continue;
    cudaPointerAttributes attributes = {};
    RETURN_IF_CUDA_ERROR(cudaPointerGetAttributes(&attributes, place), "look up an extent");
    if (attributes.type == cudaMemoryTypeHost) return ExtentPath::kHost;
  }
  return ExtentPath::kDevice;
}

}  // namespace

template <class ExtentAt>
absl::Status CudaStream::QueueExtents(size_t count, const ExtentAt& extent_at,
                                      std::span<uint64_t> hashes) {
  RETURN_IF_ERROR(Note(CheckRoomForHashes(count, hashes.size())));
  RETURN_IF_ERROR(Note(CheckReachable(hashes)));
  RETURN_IF_ERROR(Note(Enter()));
  ExtentBatch batch;
  for (size_t first = 0; first < count; first += batch.num_extents) {
    batch.num_extents = static_cast<int32_t>(
        std::min(count - first, static_cast<size_t>(ExtentBatch::kMaxExtents)));
    batch.hashes = hashes.data() + first;
    for (int32_t i = 0; i < batch.num_extents; ++i) batch.extents[i] = extent_at(first + i);
    const absl::StatusOr<ExtentPath> path = PathOf(batch.extents[0]);
    RETURN_IF_ERROR(Note(path.status()));
    RETURN_IF_ERROR(Note(ToStatus(MoveAndHash(handle_, batch, *path), "queue extents")));
  }
  return absl::OkStatus();
}

absl::Status CudaStream::CopyAll(std::span<const ExtentCopy> copies, std::span<uint64_t> hashes) {
  RETURN_IF_ERROR(Note(CheckCopySizes(copies)));
  const auto extent_at = [copies](size_t i) {
    return DeviceExtent{copies[i].src.data(), copies[i].dst.data(), copies[i].src.size()};
  };
  return QueueExtents(copies.size(), extent_at, hashes);
}

absl::Status CudaStream::HashAll(std::span<const std::span<const std::byte>> extents,
                                 std::span<uint64_t> hashes) {
  const auto extent_at = [extents](size_t i) {
    return DeviceExtent{extents[i].data(), nullptr, extents[i].size()};
  };
  return QueueExtents(extents.size(), extent_at, hashes);
}

}  // namespace tandem::cuda
