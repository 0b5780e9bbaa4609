#include "transfer/wire/payload_lane.h"

#include "base/status.h"

namespace tandem {

absl::StatusOr<uint32_t> PayloadLane::Offer(std::span<LanePayload> payloads) {
  return Internal("{} payloads offered by a side that does not send", payloads.size());
}

absl::Status PayloadLane::Expect(uint32_t bytes) {
  return InvalidArgument("{} bytes announced where nothing has to be", bytes);
}

absl::StatusOr<std::span<const std::byte>> PayloadLane::Find(uint64_t place, size_t bytes) const {
  return InvalidArgument("a payload of {} bytes at {} for a side that does not receive", bytes,
                         place);
}

}  // namespace tandem
