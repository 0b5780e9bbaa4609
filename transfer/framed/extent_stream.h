#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "kernels/device.h"

namespace tandem {

// A stream of a device that copies and hashes many extents at a time, with memory for their hashes.
// Thread: one at a time.
class ExtentStream {
 public:
  // For at most `max_extents` at a time. `device` outlives it. Errors as Device::NewStream and
  // AllocateHost.
  static absl::StatusOr<ExtentStream> Create(Device& device, size_t max_extents);

  // As Stream::CopyAll and HashAll, but these wait until the work is done. The hashes are valid until
  // the next call. Once a call returned, nothing is read or written any more, even if it failed.
  absl::StatusOr<std::span<const uint64_t>> CopyAll(std::span<const ExtentCopy> copies);
  absl::StatusOr<std::span<const uint64_t>> HashAll(
      std::span<const std::span<const std::byte>> extents);

  // The memory for the hashes.
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
