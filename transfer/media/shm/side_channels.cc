#include "transfer/media/shm/side_channels.h"

#include "base/check.h"
#include "base/status.h"

namespace tandem {

PayloadLane::Room ShmSendSideChannel::room() const {
  Room room = {.payloads = AreaCopier::kMaxPayloads, .enough_bytes = area_.piece_bytes()};
  absl::StatusOr<size_t> bytes = area_.Room();
  if (bytes.ok() && *bytes == 0) {
    stream_.Note(area_.Arm());
    bytes = area_.Room();
    if (bytes.ok() && *bytes == 0) return {.peer_holds_it = true};
    stream_.Note(area_.Disarm());
  }
  // Offer reports an impossible index.
  room.bytes = bytes.ok() ? *bytes : SIZE_MAX;
  return room;
}

absl::StatusOr<uint32_t> ShmSendSideChannel::Offer(std::span<LanePayload> payloads) {
  TANDEM_CHECK(payloads.size() <= AreaCopier::kMaxPayloads, "more payloads than there is room for");
  RETURN_IF_ERROR(area_.Room().status());
  copier_.copies.clear();
  for (LanePayload& payload : payloads) {
    payload.place = area_.Take(payload.bytes.size());
    copier_.copies.push_back(
        {.dst = area_.At(payload.place, payload.bytes.size()), .src = payload.bytes});
  }
  ASSIGN_OR_RETURN(const std::span<const uint64_t> hashes, copier_.stream.CopyAll(copier_.copies));
  for (size_t i = 0; i < payloads.size(); ++i) payloads[i].hash = hashes[i];
  return 0;
}

void ShmReceiveSideChannel::Release(uint64_t handle, size_t bytes) {
  if (area_.Release(handle + bytes)) stream_.Ring();
}

}  // namespace tandem
