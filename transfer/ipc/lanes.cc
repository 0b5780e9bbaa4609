#include "transfer/ipc/lanes.h"

#include "base/check.h"
#include "base/status.h"
#include "transfer/frame.h"

namespace tandem {

static_assert(SharedLane::kMaxBytes >= kMaxPayloadBytes, "an Offer must have room for any payload");

absl::StatusOr<std::unique_ptr<SharedLane>> SharedLane::Create(Device& device,
                                                               const SharedSegments& segments) {
  ASSIGN_OR_RETURN(std::unique_ptr<Stream> stream, device.NewStream());
  ASSIGN_OR_RETURN(DeviceBuffer hashes, device.AllocateHost(kMaxPayloads * sizeof(uint64_t)));
  const size_t enough_bytes = device.is_host() ? kEnoughHostBytes : kMaxBytes;
  return std::unique_ptr<SharedLane>(
      new SharedLane(segments, std::move(stream), std::move(hashes), enough_bytes));
}

SharedLane::SharedLane(const SharedSegments& segments, std::unique_ptr<Stream> stream,
                       DeviceBuffer hash_memory, size_t enough_bytes)
    : segments_(segments),
      stream_(std::move(stream)),
      enough_bytes_(enough_bytes),
      hash_memory_(std::move(hash_memory)) {
  extents_.reserve(kMaxPayloads);
}

std::span<uint64_t> SharedLane::hashes() const {
  return {reinterpret_cast<uint64_t*>(hash_memory_.data()), kMaxPayloads};
}

absl::StatusOr<uint32_t> SharedLane::Offer(std::span<LanePayload> payloads) {
  TANDEM_CHECK(payloads.size() <= kMaxPayloads, "more payloads than there was room for");
  extents_.clear();
  for (LanePayload& payload : payloads) {
    ASSIGN_OR_RETURN(payload.place, segments_.PlaceOf(payload.bytes));
    extents_.push_back(payload.bytes);
  }
  const std::span<uint64_t> hashes = this->hashes().first(payloads.size());
  RETURN_IF_ERROR(stream_->HashAll(extents_, hashes));
  RETURN_IF_ERROR(stream_->Synchronize());
  for (size_t i = 0; i < payloads.size(); ++i) payloads[i].hash = hashes[i];
  return 0;
}

absl::Status SharedLane::Expect(uint32_t bytes) {
  return InvalidArgument("{} bytes announced to the side that sends", bytes);
}

absl::StatusOr<std::span<const std::byte>> SharedLane::Find(uint64_t, size_t bytes) const {
  return InvalidArgument("a payload of {} bytes for the side that sends", bytes);
}

absl::StatusOr<uint32_t> OpenedLane::Offer(std::span<LanePayload> payloads) {
  return Internal("{} payloads offered by the side that receives", payloads.size());
}

absl::Status OpenedLane::Expect(uint32_t bytes) {
  return InvalidArgument("{} bytes announced: nothing has to be over ipc", bytes);
}

}  // namespace tandem
