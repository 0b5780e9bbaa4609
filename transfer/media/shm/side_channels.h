#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "transfer/framed/extent_stream.h"
#include "transfer/media/shm/area.h"
#include "transfer/media/shm/area_pool.h"
#include "transfer/wire/side_channel.h"

namespace tandem {

// The copy stream that all sending side channels of a medium share, one at a time.
struct AreaCopier {
  static constexpr size_t kMaxPayloads = 512;

  ExtentStream stream;
  std::vector<ExtentCopy> copies;  // of the Offer in progress
};

// The sending end of a connection: copies payloads into its area and hashes them in the same pass.
class ShmSendSideChannel final : public SideChannel {
 public:
  // `area` was taken from `areas`, and goes back with the destructor. `areas` and `copier` are the
  // medium's and outlive this object. `piece_bytes` as for Area.
  ShmSendSideChannel(AreaPool& areas, size_t area, size_t piece_bytes, AreaCopier& copier);
  ~ShmSendSideChannel() override;

  Room room(uint64_t in_flight) override;
  absl::StatusOr<uint32_t> Offer(std::span<OfferedPayload> payloads) override;
  bool keeps_copies() const override { return true; }

 private:
  AreaPool& areas_;
  const size_t index_;
  Area area_;
  AreaCopier& copier_;
};

// The receiving end of a connection: finds payloads in the sender's area.
class ShmReceiveSideChannel final : public SideChannel {
 public:
  ShmReceiveSideChannel(Mapping mapping, DeviceBuffer registration)
      : mapping_(std::move(mapping)), registration_(std::move(registration)) {}

  absl::StatusOr<std::span<const std::byte>> Find(uint64_t handle, size_t bytes) const override;

 private:
  const Mapping mapping_;
  const DeviceBuffer registration_;  // of the mapping, and destroyed before it
};

}  // namespace tandem
