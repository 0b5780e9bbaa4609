#include "transfer/media/ipc/ipc_medium.h"

#include "base/status.h"

namespace tandem {
namespace {

// The amount of payload in the host's memory that is worth an Offer. The sender hashes one such
// amount while the receiver copies the one before, which takes about the same time. A GPU is given
// all that there is at once.
constexpr size_t kEnoughHostBytes = size_t{1} << 20;

}  // namespace

absl::StatusOr<std::unique_ptr<IpcSendSideChannel>> IpcSendSideChannel::Create(
    Device& device, const SharedSegments& segments) {
  ASSIGN_OR_RETURN(ExtentStream stream, ExtentStream::Create(device));
  const size_t enough_bytes = device.is_host() ? kEnoughHostBytes : kMaxPayloadBytes;
  return std::unique_ptr<IpcSendSideChannel>(
      new IpcSendSideChannel(segments, std::move(stream), enough_bytes));
}

absl::StatusOr<uint32_t> IpcSendSideChannel::Offer(std::span<OfferedPayload> payloads) {
  extents_.clear();
  for (OfferedPayload& payload : payloads) {
    ASSIGN_OR_RETURN(payload.handle, segments_.HandleOf(payload.bytes));
    extents_.push_back(payload.bytes);
  }
  ASSIGN_OR_RETURN(const std::span<const uint64_t> hashes, stream_.HashAll(extents_));
  for (size_t i = 0; i < payloads.size(); ++i) payloads[i].hash = hashes[i];
  return 0;
}

absl::StatusOr<std::unique_ptr<IpcMedium>> IpcMedium::Open(const IpcOptions& options) {
  if (!options.device->can_share()) {
    return Unimplemented("{} cannot share memory with other processes: use shm or tcp",
                         options.device->name());
  }
  ASSIGN_OR_RETURN(SharedSegments segments, SharedSegments::Share(*options.device, options.shared));
  ASSIGN_OR_RETURN(HostListener listener, HostListener::Open());
  std::unique_ptr<IpcMedium> medium(
      new IpcMedium(*options.device, std::move(listener), std::move(segments)));
  ASSIGN_OR_RETURN(medium->side_channel_,
                   IpcSendSideChannel::Create(*options.device, medium->segments_));
  return medium;
}

absl::StatusOr<HostMedium::SharedMemory> IpcMedium::Share() {
  return SharedMemory{
      .greeting = segments_.greeting(), .files = segments_.files(), .side_channel = side_channel_};
}

absl::StatusOr<std::unique_ptr<SideChannel>> IpcMedium::OpenShared(const MemoryGreeting& greeting,
                                                                   std::vector<UniqueFd> files) {
  ASSIGN_OR_RETURN(OpenedSegments segments,
                   OpenedSegments::Open(device_, greeting, std::move(files)));
  return std::make_unique<OpenedSegments>(std::move(segments));
}

}  // namespace tandem
