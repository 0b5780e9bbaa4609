#include "transfer/media/host_medium.h"

#include <sys/socket.h>

#include <cerrno>

#include "base/status.h"
#include "transfer/media/unix_socket.h"

namespace tandem {

absl::StatusOr<HostListener> HostListener::Open() {
  ASSIGN_OR_RETURN(HostAddress address, NewHostAddress());
  ASSIGN_OR_RETURN(UniqueFd socket, ListenUnix(address.name));
  return HostListener{.address = std::move(address), .socket = std::move(socket)};
}

absl::Status HostMedium::MayReach(std::string_view peer) const {
  ASSIGN_OR_RETURN(const HostAddress address, ParseHostAddress(peer));
  if (address.host == listener_.address.host) return absl::OkStatus();
  return Unavailable("{} is on another host or in another network namespace", peer);
}

absl::StatusOr<std::unique_ptr<ByteChannel>> HostMedium::Accept() {
  UniqueFd socket(accept4(listener_fd(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket.valid()) {
    if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
      return ResourceExhausted("cannot accept: {}", ErrnoMessage(errno));
    }
    return nullptr;
  }
  if (PeerIsSameUser(socket.get())) {
    MemoryOpener& opener = *this;
    return std::make_unique<AcceptedHostChannel>(std::move(socket), opener);
  }
  // The peer sees the end of the connection if this answer does not reach it.
  SendWithDescriptors(socket.get(), EncodeMemoryAnswer(absl::StatusCode::kPermissionDenied), {})
      .IgnoreError();
  return MakeStatus(absl::StatusCode::kPermissionDenied, "{}: the peer is of another user", name());
}

absl::StatusOr<std::unique_ptr<ByteChannel>> HostMedium::Connect(std::string_view peer) {
  ASSIGN_OR_RETURN(const HostAddress address, ParseHostAddress(peer));
  ASSIGN_OR_RETURN(SharedMemory shared, Share());
  ASSIGN_OR_RETURN(UniqueFd socket, ConnectUnix(address.name));
  if (!PeerIsSameUser(socket.get())) {
    return FailedPrecondition("{} belongs to another user", peer);
  }
  RETURN_IF_ERROR(
      SendWithDescriptors(socket.get(), EncodeMemoryGreeting(shared.greeting), shared.files));
  return std::make_unique<ConnectedHostChannel>(std::move(socket), std::move(shared.side_channel));
}

}  // namespace tandem
