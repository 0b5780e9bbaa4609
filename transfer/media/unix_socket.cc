#include "transfer/media/unix_socket.h"

#include <sys/socket.h>
#include <sys/uio.h>
#include <sys/un.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/check.h"
#include "base/status.h"
#include "transfer/media/socket_channel.h"

namespace tandem {
namespace {

struct AbstractName {
  explicit AbstractName(const std::string& name) {
    address.sun_family = AF_UNIX;
    TANDEM_CHECK(name.size() < sizeof(address.sun_path), "a name that no unix socket can have");
    std::ranges::copy(name, address.sun_path + 1);
    size = static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
  }
  const sockaddr* get() const { return reinterpret_cast<const sockaddr*>(&address); }

  sockaddr_un address{};
  socklen_t size = 0;
};

UniqueFd NewSocket() {
  return UniqueFd(socket(AF_UNIX, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
}

// The control data of a message with kMaxDescriptors descriptors. The system closes descriptors
// that do not fit and sets MSG_CTRUNC.
struct DescriptorSpace {
  alignas(cmsghdr) std::byte bytes[CMSG_SPACE(kMaxDescriptors * sizeof(int))] = {};
};

std::vector<UniqueFd> TakeDescriptors(msghdr& message) {
  std::vector<UniqueFd> descriptors;
  for (cmsghdr* part = CMSG_FIRSTHDR(&message); part != nullptr;
       part = CMSG_NXTHDR(&message, part)) {
    if (part->cmsg_level != SOL_SOCKET || part->cmsg_type != SCM_RIGHTS) continue;
    const size_t count = (part->cmsg_len - CMSG_LEN(0)) / sizeof(int);
    for (size_t i = 0; i < count; ++i) {
      int number = -1;
      std::memcpy(&number, CMSG_DATA(part) + i * sizeof(int), sizeof(int));
      descriptors.emplace_back(number);
    }
  }
  return descriptors;
}

}  // namespace

absl::StatusOr<UniqueFd> ListenUnix(const std::string& name) {
  UniqueFd listener = NewSocket();
  const AbstractName address(name);
  if (listener.valid() && bind(listener.get(), address.get(), address.size) == 0 &&
      listen(listener.get(), kListenBacklog) == 0) {
    return listener;
  }
  return Unavailable("cannot listen on unix socket @{}: {}", name, ErrnoMessage(errno));
}

absl::StatusOr<UniqueFd> ConnectUnix(const std::string& name) {
  UniqueFd socket = NewSocket();
  const AbstractName address(name);
  if (socket.valid() && connect(socket.get(), address.get(), address.size) == 0) return socket;
  return Unavailable("cannot connect to unix socket @{}: {}", name, ErrnoMessage(errno));
}

bool PeerIsSameUser(int socket) {
  ucred peer{};
  socklen_t size = sizeof(peer);
  return getsockopt(socket, SOL_SOCKET, SO_PEERCRED, &peer, &size) == 0 && peer.uid == geteuid();
}

absl::Status SendWithDescriptors(int socket, std::span<const std::byte> bytes,
                                 std::span<const int> descriptors) {
  TANDEM_CHECK(descriptors.size() <= kMaxDescriptors, "more descriptors than a peer would take");
  iovec part = {const_cast<std::byte*>(bytes.data()), bytes.size()};
  DescriptorSpace control;
  msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
  if (!descriptors.empty()) {
    message.msg_control = control.bytes;
    message.msg_controllen = CMSG_SPACE(descriptors.size_bytes());
    cmsghdr* rights = CMSG_FIRSTHDR(&message);
    rights->cmsg_level = SOL_SOCKET;
    rights->cmsg_type = SCM_RIGHTS;
    rights->cmsg_len = CMSG_LEN(descriptors.size_bytes());
    std::memcpy(CMSG_DATA(rights), descriptors.data(), descriptors.size_bytes());
  }
  const ssize_t count = sendmsg(socket, &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  if (count == static_cast<ssize_t>(bytes.size())) return absl::OkStatus();
  return Unavailable("cannot greet the peer: {}",
                     count < 0 ? ErrnoMessage(errno) : "its socket is full");
}

absl::StatusOr<Received> ReceiveWithDescriptors(int socket, std::span<std::byte> bytes) {
  iovec part = {bytes.data(), bytes.size()};
  DescriptorSpace control;
  msghdr message = {.msg_iov = &part, .msg_iovlen = 1};
  message.msg_control = control.bytes;
  message.msg_controllen = sizeof(control.bytes);
  const ssize_t count = recvmsg(socket, &message, MSG_DONTWAIT | MSG_CMSG_CLOEXEC);
  if (count < 0 && (errno == EAGAIN || errno == EINTR)) return Received{};
  if (count < 0) return Unavailable("connection lost: {}", ErrnoMessage(errno));
  if (count == 0) return Unavailable("the peer closed the connection");
  Received received = {.count = static_cast<size_t>(count),
                       .descriptors = TakeDescriptors(message)};
  if ((message.msg_flags & MSG_CTRUNC) == 0) return received;
  if (received.descriptors.size() < kMaxDescriptors) {
    return Unavailable("no room for the descriptors of a peer: raise the limit of open files");
  }
  return FailedPrecondition("the peer sent more than {} descriptors at once", kMaxDescriptors);
}

}  // namespace tandem
