#include "transfer/media/ipc/segments.h"

#include <algorithm>
#include <functional>
#include <optional>

#include "base/status.h"

namespace tandem {
namespace {

// The offset of `part` in `whole`; empty unless `whole` contains all of it.
std::optional<size_t> OffsetIn(std::span<const std::byte> whole, std::span<const std::byte> part) {
  const std::less_equal<const std::byte*> not_behind;
  const std::byte* end = part.data() + part.size();
  if (!not_behind(whole.data(), part.data()) || !not_behind(end, whole.data() + whole.size())) {
    return std::nullopt;
  }
  return static_cast<size_t>(part.data() - whole.data());
}

}  // namespace

absl::StatusOr<SharedSegments> SharedSegments::Share(
    Device& device, std::span<const std::span<const std::byte>> memory) {
  if (memory.size() > kMaxMemorySegments) {
    return InvalidArgument("{} pieces of memory to share over ipc: at most {}", memory.size(),
                           kMaxMemorySegments);
  }
  std::vector<Segment> segments;
  for (const std::span<const std::byte> piece : memory) {
    if (piece.empty() || piece.size() >= kMaxMemorySegmentBytes) {
      return InvalidArgument("a piece of {} bytes to share over ipc: at least 1, less than {}",
                             piece.size(), kMaxMemorySegmentBytes);
    }
    ASSIGN_OR_RETURN(MemoryHandle handle, device.Share(piece));
    segments.push_back({.memory = piece, .handle = std::move(handle)});
  }
  return SharedSegments(std::move(segments));
}

absl::StatusOr<uint64_t> SharedSegments::HandleOf(std::span<const std::byte> bytes) const {
  for (size_t i = 0; i < segments_.size(); ++i) {
    if (const std::optional<size_t> offset = OffsetIn(segments_[i].memory, bytes)) {
      return uint64_t{i} << kSegmentOffsetBits | *offset;
    }
  }
  return InvalidArgument(
      "{} bytes at {} are in none of the {} pieces of memory that ipc shares: name what they are "
      "part of in IpcOptions::shared",
      bytes.size(), static_cast<const void*>(bytes.data()), segments_.size());
}

MemoryGreeting SharedSegments::greeting() const {
  MemoryGreeting greeting;
  for (const Segment& segment : segments_) {
    greeting.segments.push_back({.kind = segment.handle.kind,
                                 .bytes = segment.handle.bytes,
                                 .token = segment.handle.token});
  }
  return greeting;
}

std::vector<int> SharedSegments::files() const {
  std::vector<int> files;
  for (const Segment& segment : segments_) {
    if (HasFile(segment.handle.kind)) files.push_back(segment.handle.file.get());
  }
  return files;
}

absl::StatusOr<OpenedSegments> OpenedSegments::Open(Device& device, const MemoryGreeting& greeting,
                                                    std::vector<UniqueFd> files) {
  const auto wanted = static_cast<size_t>(std::ranges::count_if(
      greeting.segments, [](const MemorySegment& segment) { return HasFile(segment.kind); }));
  if (files.size() != wanted) {
    return FailedPrecondition("the peer sent {} files with memory that has {}", files.size(),
                              wanted);
  }
  std::vector<DeviceBuffer> segments;
  size_t next_file = 0;
  for (const MemorySegment& segment : greeting.segments) {
    MemoryHandle handle = {.kind = segment.kind, .bytes = segment.bytes, .token = segment.token};
    if (HasFile(segment.kind)) handle.file = std::move(files[next_file++]);
    ASSIGN_OR_RETURN(segments.emplace_back(), device.OpenShared(handle));
  }
  return OpenedSegments(std::move(segments));
}

absl::StatusOr<std::span<const std::byte>> OpenedSegments::Find(uint64_t handle,
                                                                size_t bytes) const {
  const uint64_t index = handle >> kSegmentOffsetBits;
  const uint64_t offset = handle & (kMaxMemorySegmentBytes - 1);
  if (index >= segments_.size()) {
    return InvalidArgument("a payload in segment {} of a peer that shares {}", index,
                           segments_.size());
  }
  const std::span<const std::byte> segment = segments_[index].bytes();
  if (offset > segment.size() || bytes > segment.size() - offset) {
    return InvalidArgument("a payload of {} bytes at {} of a segment of {}", bytes, offset,
                           segment.size());
  }
  return segment.subspan(offset, bytes);
}

}  // namespace tandem
