#include "transfer/media/shm/side_channels.h"

#include "base/check.h"
#include "base/status.h"

namespace tandem {

ShmSendSideChannel::ShmSendSideChannel(AreaPool& areas, size_t area, size_t piece_bytes,
                                       AreaCopier& copier)
    : areas_(areas),
      index_(area),
      area_(areas[area].mapping.bytes(), piece_bytes),
      copier_(copier) {}

ShmSendSideChannel::~ShmSendSideChannel() { areas_.GiveBack(index_); }

SideChannel::Room ShmSendSideChannel::room(uint64_t in_flight) {
  area_.KeepLatest(in_flight);
  const size_t bytes = area_.Room();
  if (bytes == 0) return {.peer_holds_it = true};
  return {
      .payloads = AreaCopier::kMaxPayloads, .bytes = bytes, .enough_bytes = area_.piece_bytes()};
}

absl::StatusOr<uint32_t> ShmSendSideChannel::Offer(std::span<OfferedPayload> payloads) {
  TANDEM_CHECK(payloads.size() <= AreaCopier::kMaxPayloads, "more payloads than there is room for");
  copier_.copies.clear();
  for (OfferedPayload& payload : payloads) {
    payload.handle = area_.Take(payload.bytes.size());
    copier_.copies.push_back(
        {.dst = area_.At(payload.handle, payload.bytes.size()), .src = payload.bytes});
  }
  ASSIGN_OR_RETURN(const std::span<const uint64_t> hashes, copier_.stream.CopyAll(copier_.copies));
  for (size_t i = 0; i < payloads.size(); ++i) payloads[i].hash = hashes[i];
  return 0;
}

absl::StatusOr<std::span<const std::byte>> ShmReceiveSideChannel::Find(uint64_t handle,
                                                                       size_t bytes) const {
  const std::span<const std::byte> area = mapping_.bytes();
  if (handle <= area.size() && bytes <= area.size() - handle) return area.subspan(handle, bytes);
  return InvalidArgument("a payload of {} bytes at {} of an area of {}", bytes, handle,
                         area.size());
}

}  // namespace tandem
