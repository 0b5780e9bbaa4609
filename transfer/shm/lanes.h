#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transfer/extent_stream.h"
#include "transfer/payload_lane.h"
#include "transfer/shm/area.h"
#include "transfer/shm/ring_stream.h"

namespace tandem {

// What the sending lanes of a medium copy with, one at a time.
struct AreaCopier {
  static constexpr size_t kMaxPayloads = 512;

  ExtentStream stream;
  size_t max_payload_bytes = 0;    // of what may be offered
  std::vector<ExtentCopy> copies;  // of the Offer that is under way
};

// The end of a connection that sends: payloads are copied into the area, hashed on the way.
class AreaSendLane final : public PayloadLane {
 public:
  // `copier`, the medium's, and `stream`, the connection's, outlive it.
  AreaSendLane(AreaCopier& copier, AreaWriter area, RingStream& stream)
      : copier_(copier), area_(area), stream_(stream) {}

  Room room() const override;
  absl::StatusOr<uint32_t> Offer(std::span<LanePayload> payloads) override;
  bool keeps_copies() const override { return true; }

 private:
  AreaCopier& copier_;
  // Asking for room looks at what the peer freed, or asks it to say when it does.
  mutable AreaWriter area_;
  RingStream& stream_;
};

// The other end: payloads are copied from the area to their places by whoever finds them.
class AreaReceiveLane final : public PayloadLane {
 public:
  AreaReceiveLane(AreaReader area, RingStream& stream) : area_(area), stream_(stream) {}

  absl::StatusOr<std::span<const std::byte>> Find(uint64_t place, size_t bytes) const override {
    return area_.Find(place, bytes);
  }
  void Release(uint64_t place, size_t bytes) override;

 private:
  AreaReader area_;
  RingStream& stream_;
};

}  // namespace tandem
