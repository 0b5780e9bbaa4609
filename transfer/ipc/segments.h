#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "transfer/ipc/greeting.h"

namespace tandem {

// Memory of this process that others may read, and where in it something lies: a place is the
// number of the segment << kIpcOffsetBits | the offset in it, the same on both sides.
// Constant, so thread-safe.
class SharedSegments {
 public:
  // `memory`: each the whole of what Device::AllocateShared gave, at most kMaxIpcSegments. It stays
  // as it is while this lives. INVALID_ARGUMENT otherwise; errors as Device::Share.
  static absl::StatusOr<SharedSegments> Share(Device& device,
                                              std::span<const std::span<const std::byte>> memory);

  // INVALID_ARGUMENT for bytes that do not lie in one segment.
  absl::StatusOr<uint64_t> PlaceOf(std::span<const std::byte> bytes) const;

  // What peers are told, and the files that go with it.
  IpcGreeting greeting() const;
  std::vector<int> files() const;

 private:
  struct Segment {
    std::span<const std::byte> memory;
    MemoryHandle handle;
  };

  explicit SharedSegments(std::vector<Segment> segments) : segments_(std::move(segments)) {}

  std::vector<Segment> segments_;
};

// A peer's SharedSegments, open for reading for as long as this lives.
// Constant, so thread-safe.
class OpenedSegments {
 public:
  // `files`: all that came with the greeting. FAILED_PRECONDITION when they are not one for each
  // segment that has one; errors as Device::OpenShared. May take milliseconds.
  static absl::StatusOr<OpenedSegments> Open(Device& device, const IpcGreeting& greeting,
                                             std::vector<UniqueFd> files);

  // INVALID_ARGUMENT for what is not within a segment.
  absl::StatusOr<std::span<const std::byte>> Find(uint64_t place, size_t bytes) const;

 private:
  explicit OpenedSegments(std::vector<DeviceBuffer> segments) : segments_(std::move(segments)) {}

  std::vector<DeviceBuffer> segments_;
};

}  // namespace tandem
