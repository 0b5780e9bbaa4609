#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "transfer/media/memory_greeting.h"
#include "transfer/wire/byte_channel.h"

namespace tandem {

// The memory of this process that peers may read. The handle of a payload in it is the number of
// the segment << kSegmentOffsetBits | the offset in the segment, on both sides.
// Constant, so thread-safe.
class SharedSegments {
 public:
  // Shares `memory`, which has at most kMaxMemorySegments pieces, each the whole of a
  // Device::AllocateShared that outlives this object; INVALID_ARGUMENT otherwise. Other errors as
  // Device::Share.
  static absl::StatusOr<SharedSegments> Share(Device& device,
                                              std::span<const std::span<const std::byte>> memory);

  // The handle of a payload. INVALID_ARGUMENT for bytes that do not lie in one segment.
  absl::StatusOr<uint64_t> HandleOf(std::span<const std::byte> bytes) const;

  // The greeting that describes the memory, and the files that are sent with it.
  MemoryGreeting greeting() const;
  std::vector<int> files() const;

 private:
  struct Segment {
    std::span<const std::byte> memory;
    MemoryHandle handle;
  };

  explicit SharedSegments(std::vector<Segment> segments) : segments_(std::move(segments)) {}

  std::vector<Segment> segments_;
};

// The receiving side of a connection: payloads lie in the peer's SharedSegments, which are open for
// reading during the lifetime of this object.
// Constant, so thread-safe.
class OpenedSegments final : public SideChannel {
 public:
  // Opens the memory that a peer's greeting describes; `files` are all that came with it.
  // FAILED_PRECONDITION unless there is one for each segment that has a file; other errors as
  // Device::OpenShared. May take milliseconds.
  static absl::StatusOr<OpenedSegments> Open(Device& device, const MemoryGreeting& greeting,
                                             std::vector<UniqueFd> files);

  // Where a payload of the peer lies. INVALID_ARGUMENT when it is not within one segment.
  absl::StatusOr<std::span<const std::byte>> Find(uint64_t handle, size_t bytes) const override;

 private:
  explicit OpenedSegments(std::vector<DeviceBuffer> segments) : segments_(std::move(segments)) {}

  std::vector<DeviceBuffer> segments_;
};

}  // namespace tandem
