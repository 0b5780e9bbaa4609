#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "transfer/extent_stream.h"
#include "transfer/ipc/segments.h"
#include "transfer/payload_lane.h"

namespace tandem {

// The sending side of every connection of a medium: payloads stay where they are, their hashes are
// computed there.
class SharedLane final : public PayloadLane {
 public:
  static constexpr size_t kMaxPayloads = 512;
  static constexpr size_t kMaxBytes = size_t{64} << 20;
  // Of the host's memory: hashing costs the sender about as much time as copying costs the
  // receiver. What a GPU is given to do at once may be as much as there is.
  static constexpr size_t kEnoughHostBytes = size_t{1} << 20;

  // `segments` outlives this. Errors as ExtentStream::Create.
  static absl::StatusOr<std::unique_ptr<SharedLane>> Create(Device& device,
                                                            const SharedSegments& segments);

  Room room() const override {
    return {.payloads = kMaxPayloads, .bytes = kMaxBytes, .enough_bytes = enough_bytes_};
  }
  absl::StatusOr<uint32_t> Offer(std::span<LanePayload> payloads) override;

  // Set aside for the hashes.
  size_t buffer_bytes() const { return stream_.buffer_bytes(); }

 private:
  SharedLane(const SharedSegments& segments, ExtentStream stream, size_t enough_bytes);

  const SharedSegments& segments_;
  const size_t enough_bytes_;
  ExtentStream stream_;
  std::vector<std::span<const std::byte>> extents_;  // of the Offer that is under way
};

// The receiving side of one connection: payloads lie in the memory that the peer shares.
class OpenedLane final : public PayloadLane {
 public:
  explicit OpenedLane(OpenedSegments segments) : segments_(std::move(segments)) {}

  absl::StatusOr<std::span<const std::byte>> Find(uint64_t place, size_t bytes) const override {
    return segments_.Find(place, bytes);
  }

 private:
  const OpenedSegments segments_;
};

}  // namespace tandem
