#include "transfer/media/ipc/side_channels.h"

#include "base/check.h"
#include "base/status.h"
#include "transfer/wire/frame.h"

namespace tandem {

static_assert(IpcSendSideChannel::kMaxBytes >= kMaxPayloadBytes,
              "an Offer must have room for any payload");

absl::StatusOr<std::unique_ptr<IpcSendSideChannel>> IpcSendSideChannel::Create(
    Device& device, const SharedSegments& segments) {
  ASSIGN_OR_RETURN(ExtentStream stream, ExtentStream::Create(device, kMaxPayloads));
  const size_t enough_bytes = device.is_host() ? kEnoughHostBytes : kMaxBytes;
  return std::unique_ptr<IpcSendSideChannel>(
      new IpcSendSideChannel(segments, std::move(stream), enough_bytes));
}

IpcSendSideChannel::IpcSendSideChannel(const SharedSegments& segments, ExtentStream stream,
                                       size_t enough_bytes)
    : segments_(segments), enough_bytes_(enough_bytes), stream_(std::move(stream)) {
  extents_.reserve(kMaxPayloads);
}

absl::StatusOr<uint32_t> IpcSendSideChannel::Offer(std::span<OfferedPayload> payloads) {
  TANDEM_CHECK(payloads.size() <= kMaxPayloads, "more payloads than there was room for");
  extents_.clear();
  for (OfferedPayload& payload : payloads) {
    ASSIGN_OR_RETURN(payload.handle, segments_.HandleOf(payload.bytes));
    extents_.push_back(payload.bytes);
  }
  ASSIGN_OR_RETURN(const std::span<const uint64_t> hashes, stream_.HashAll(extents_));
  for (size_t i = 0; i < payloads.size(); ++i) payloads[i].hash = hashes[i];
  return 0;
}

}  // namespace tandem
