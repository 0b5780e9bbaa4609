#include "transfer/media/ipc/ipc_medium.h"

#include "base/status.h"
#include "transfer/media/unix_socket.h"

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

absl::StatusOr<std::unique_ptr<ByteChannel>> IpcMedium::Accept() {
  ASSIGN_OR_RETURN(UniqueFd socket, listener_.Accept());
  if (!socket.valid()) return nullptr;
  if (PeerIsSameUser(socket.get())) {
    return std::make_unique<AcceptedIpcChannel>(std::move(socket), device_);
  }
  // The peer sees the end of the connection if this answer does not reach it.
  SendWithDescriptors(socket.get(), EncodeIpcAnswer(absl::StatusCode::kPermissionDenied), {})
      .IgnoreError();
  return MakeStatus(absl::StatusCode::kPermissionDenied, "ipc: the peer is of another user");
}

absl::StatusOr<std::unique_ptr<ByteChannel>> IpcMedium::Connect(std::string_view peer) {
  ASSIGN_OR_RETURN(UniqueFd socket, listener_.Connect(peer));
  RETURN_IF_ERROR(SendWithDescriptors(socket.get(), EncodeIpcGreeting(segments_.greeting()),
                                      segments_.files()));
  return std::make_unique<ConnectedIpcChannel>(std::move(socket), *side_channel_);
}

}  // namespace tandem
