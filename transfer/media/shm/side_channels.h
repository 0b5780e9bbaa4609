#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "transfer/framed/extent_stream.h"
#include "transfer/media/shm/area.h"
#include "transfer/media/shm/ring_stream.h"
#include "transfer/wire/payload_lane.h"

namespace tandem {

// The copy stream that all sending side channels of a medium share, one at a time.
struct AreaCopier {
  static constexpr size_t kMaxPayloads = 512;

  ExtentStream stream;
  size_t max_payload_bytes = 0;    // the largest payload that may be offered
  std::vector<ExtentCopy> copies;  // of the Offer in progress
};

// The sending end of a connection: copies payloads into the area and hashes them in the same pass.
class ShmSendSideChannel final : public PayloadLane {
 public:
  // The medium's `copier` and the connection's `stream` outlive this object.
  ShmSendSideChannel(AreaCopier& copier, AreaWriter area, RingStream& stream)
      : copier_(copier), area_(area), stream_(stream) {}

  Room room() const override;
  absl::StatusOr<uint32_t> Offer(std::span<LanePayload> payloads) override;
  bool keeps_copies() const override { return true; }

 private:
  AreaCopier& copier_;
  // Mutable because room() reads what the peer has freed, or asks to be woken when it frees more.
  mutable AreaWriter area_;
  RingStream& stream_;
};

// The receiving end of a connection: finds payloads in the area, from where the transport copies
// them to their destinations, and frees the area behind them.
class ShmReceiveSideChannel final : public PayloadLane {
 public:
  ShmReceiveSideChannel(AreaReader area, RingStream& stream) : area_(area), stream_(stream) {}

  absl::StatusOr<std::span<const std::byte>> Find(uint64_t handle, size_t bytes) const override {
    return area_.Find(handle, bytes);
  }
  void Release(uint64_t handle, size_t bytes) override;

 private:
  AreaReader area_;
  RingStream& stream_;
};

}  // namespace tandem
