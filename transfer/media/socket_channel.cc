#include "transfer/media/socket_channel.h"

#include <sys/socket.h>

#include <cerrno>

#include "base/status.h"

namespace tandem {
namespace {

size_t TotalBytes(std::span<const iovec> parts) {
  size_t total = 0;
  for (const iovec& part : parts) total += part.iov_len;
  return total;
}

}  // namespace

absl::StatusOr<UniqueFd> AcceptSocket(int listener) {
  UniqueFd socket(accept4(listener, nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
  if (!socket.valid() &&
      (errno == EMFILE || errno == ENFILE || errno == ENOBUFS || errno == ENOMEM)) {
    return ResourceExhausted("cannot accept a connection: {}", ErrnoMessage(errno));
  }
  return socket;
}

absl::StatusOr<size_t> SocketChannel::Read(std::span<const iovec> parts) {
  while (true) {
    const ssize_t count = readv(socket_.get(), parts.data(), static_cast<int>(parts.size()));
    if (count > 0) return static_cast<size_t>(count);
    if (count == 0) return Unavailable("the peer closed the connection");
    if (errno == EAGAIN) return 0;
    if (errno != EINTR) return Unavailable("connection lost: {}", ErrnoMessage(errno));
  }
}

absl::StatusOr<size_t> SocketChannel::Write(std::span<const iovec> parts) {
  const msghdr message = {.msg_iov = const_cast<iovec*>(parts.data()), .msg_iovlen = parts.size()};
  while (true) {
    const ssize_t count = sendmsg(socket_.get(), &message, MSG_NOSIGNAL);
    if (count >= 0) {
      full_ = static_cast<size_t>(count) < TotalBytes(parts);
      return static_cast<size_t>(count);
    }
    if (errno == EAGAIN) {
      full_ = true;
      return 0;
    }
    if (errno != EINTR) return Unavailable("connection lost: {}", ErrnoMessage(errno));
  }
}

}  // namespace tandem
