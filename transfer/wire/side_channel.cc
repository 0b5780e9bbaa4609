#include "transfer/wire/side_channel.h"

#include "base/status.h"

namespace tandem {

absl::StatusOr<uint32_t> SideChannel::Offer(std::span<OfferedPayload> payloads) {
  return Internal("{} payloads offered by a side that does not send", payloads.size());
}

absl::Status SideChannel::Expect(uint32_t bytes) {
  return InvalidArgument("{} bytes announced where nothing has to be", bytes);
}

absl::StatusOr<std::span<const std::byte>> SideChannel::Find(uint64_t handle, size_t bytes) const {
  return InvalidArgument("a payload of {} bytes at {} for a side that does not receive", bytes,
                         handle);
}

}  // namespace tandem
