#include "transfer/media/ipc/ipc_medium.h"

#include "base/status.h"

namespace tandem {

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

absl::StatusOr<std::unique_ptr<SideChannel>> IpcMedium::OpenMemory(const MemoryGreeting& greeting,
                                                                   std::vector<UniqueFd> files) {
  ASSIGN_OR_RETURN(OpenedSegments segments,
                   OpenedSegments::Open(device_, greeting, std::move(files)));
  return std::make_unique<IpcReceiveSideChannel>(std::move(segments));
}

}  // namespace tandem
