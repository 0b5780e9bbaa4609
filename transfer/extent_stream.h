#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/device.h"

namespace tandem {

// A stream of a device for extents that are copied and hashed, many at a time, and memory for their
// hashes.
// Thread: one at a time.
class ExtentStream {
 public:
  // For at most `max_extents` at a time. `device` outlives it. Errors as Device::NewStream and
  // AllocateHost.
  static absl::StatusOr<ExtentStream> Create(Device& device, size_t max_extents);

  // As Stream::CopyAll and HashAll, and waits until it has run: the hashes, good until the next
  // call. Once it returned, nothing is read or written any more, even where it failed.
  absl::StatusOr<std::span<const uint64_t>> CopyAll(std::span<const ExtentCopy> copies);
  absl::StatusOr<std::span<const uint64_t>> HashAll(
      std::span<const std::span<const std::byte>> extents);

  // Set aside for the hashes.
  size_t buffer_bytes() const { return hash_memory_.size(); }

 private:
  ExtentStream(std::unique_ptr<Stream> stream, DeviceBuffer hash_memory)
      : stream_(std::move(stream)), hash_memory_(std::move(hash_memory)) {}

  std::span<uint64_t> hashes(size_t count);
  absl::Status Await(const absl::Status& queued);

  std::unique_ptr<Stream> stream_;
  DeviceBuffer hash_memory_;
};

}  // namespace tandem
