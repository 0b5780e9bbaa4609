#pragma once

#include <cuda_runtime.h>

#include <cstddef>
#include <cstdint>

namespace tandem::cuda {

// Bytes to copy and hash, or, with `to` null, to hash where they are.
struct DeviceExtent {
  const std::byte* from;
  std::byte* to;
  uint64_t bytes;
};

// The extents of one launch, which are the kernel's parameter so that no memory of the host or the
// device has to hold them. Just under the 4 KiB that parameters may have.
struct ExtentBatch {
  static constexpr int kMaxExtents = 168;

  DeviceExtent extents[kMaxExtents];
  int32_t num_extents;
  uint64_t* hashes;  // [num_extents], where device and host both reach
};

// Where the bytes of a launch's extents go through: the memory of devices alone, or the bus to the
// host, which a few warps fill.
enum class ExtentPath : uint8_t { kDevice, kHost };

// Copies and hashes (extents.cu): hashes[i] = XXH3-64 of what was written to extents[i].to, or lies
// at its `from`. Each byte is read once and written once. Places may begin anywhere; those that
// begin on a multiple of 16 bytes are the fast ones. `path` decides how much of the device the launch
// takes, and never what it does. Legal in a stream capture. num_extents is at least 1.
cudaError_t MoveAndHash(cudaStream_t stream, const ExtentBatch& batch, ExtentPath path);

}  // namespace tandem::cuda
