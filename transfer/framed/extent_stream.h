#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "base/status.h"
#include "kernels/device.h"

namespace tandem {

// A stream of a device that copies and hashes many extents at a time, with memory for their hashes.
// Thread: one at a time.
class ExtentStream {
 public:
  // The most extents of one call: enough to pay for one wait for the device.
  static constexpr size_t kMaxExtents = 512;

  // `device` outlives the stream. Errors as Device::NewStream and AllocateHost.
  static absl::StatusOr<ExtentStream> Create(Device& device) {
    ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, device.NewStream());
    ASSIGN_OR_RETURN(DeviceBuffer hashes, device.AllocateHost(kMaxExtents * sizeof(uint64_t)));
    return ExtentStream(std::move(stream), std::move(hashes));
  }

  // CopyAll and HashAll do what those of Stream do, and wait until the work is done. The hashes are
  // valid until the next call. Once a call returned, nothing is read or written any more, even if
  // it failed.
  absl::StatusOr<std::span<const uint64_t>> CopyAll(std::span<const ExtentCopy> copies) {
    return Await(stream_->CopyAll(copies, hashes(copies.size())), copies.size());
  }
  absl::StatusOr<std::span<const uint64_t>> HashAll(
      std::span<const std::span<const std::byte>> extents) {
    return Await(stream_->HashAll(extents, hashes(extents.size())), extents.size());
  }

  // The size of the memory into which the device writes hashes.
  size_t buffer_bytes() const { return hash_memory_.size(); }

 private:
  ExtentStream(std::unique_ptr<Stream> stream, DeviceBuffer hash_memory)
      : stream_(std::move(stream)), hash_memory_(std::move(hash_memory)) {}

  std::span<uint64_t> hashes(size_t count) {
    TANDEM_CHECK(count <= kMaxExtents, "more extents than there is room");
    return {reinterpret_cast<uint64_t*>(hash_memory_.data()), count};
  }
  // Waits even if queueing failed, because part of the work may have been queued.
  absl::StatusOr<std::span<const uint64_t>> Await(const absl::Status& queued, size_t count) {
    const absl::Status done = stream_->Synchronize();
    RETURN_IF_ERROR(queued.ok() ? done : queued);
    return hashes(count);
  }

  std::unique_ptr<Stream> stream_;
  DeviceBuffer hash_memory_;
};

}  // namespace tandem
