#include "transfer/media/host_listener.h"

#include <sys/socket.h>

#include <cerrno>
#include <utility>

#include "base/status.h"
#include "transfer/media/unix_socket.h"

namespace tandem {

absl::StatusOr<HostListener> HostListener::Open() {
  ASSIGN_OR_RETURN(HostAddress address, NewHostAddress());
  ASSIGN_OR_RETURN(UniqueFd socket, ListenUnix(address.name));
  return HostListener(std::move(address), std::move(socket));
}

absl::Status HostListener::MayReach(std::string_view peer) const {
  ASSIGN_OR_RETURN(const HostAddress address, ParseHostAddress(peer));
  if (address.host == address_.host) return absl::OkStatus();
  return Unavailable("{} is on another host or in another network namespace", peer);
}

absl::StatusOr<UniqueFd> HostListener::Accept() {
  UniqueFd socket(accept4(socket_.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (socket.valid()) return socket;
  if (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM) {
    return ResourceExhausted("cannot accept: {}", ErrnoMessage(errno));
  }
  return UniqueFd();
}

absl::StatusOr<UniqueFd> HostListener::Connect(std::string_view peer) const {
  ASSIGN_OR_RETURN(const HostAddress address, ParseHostAddress(peer));
  ASSIGN_OR_RETURN(UniqueFd socket, ConnectUnix(address.name));
  if (PeerIsSameUser(socket.get())) return socket;
  return FailedPrecondition("{} belongs to another user", peer);
}

}  // namespace tandem
