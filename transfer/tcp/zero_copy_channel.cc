#include "transfer/tcp/zero_copy_channel.h"

#include <linux/errqueue.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/status.h"

namespace tandem {
namespace {

// Parts below this are copied; they are heads of frames, or extents that are hardly larger.
constexpr size_t kSmallPartBytes = 4 << 10;
// Below this a write goes plainly: pinning its pages and hearing of its end would cost more.
constexpr size_t kMinWriteBytes = 64 << 10;
constexpr size_t kMaxParts = 256;
// Writes under way: their notes take some of the socket's option memory (net.core.optmem_max).
constexpr size_t kMaxPending = 128;

bool IsSmall(const iovec& part) { return part.iov_len < kSmallPartBytes; }

SocketAddress AddressOf(const UniqueFd& socket, decltype(&getpeername) whose) {
  SocketAddress address{.size = sizeof(sockaddr_storage)};
  if (whose(socket.get(), reinterpret_cast<sockaddr*>(&address.storage), &address.size) != 0) {
    address.storage.ss_family = AF_UNSPEC;
  }
  return address;
}

// Both ends on this host: the packets take the loopback device, which copies.
bool IsThisHost(const UniqueFd& socket) {
  const SocketAddress peer = AddressOf(socket, &getpeername);
  const SocketAddress own = AddressOf(socket, &getsockname);
  if (peer.storage.ss_family == AF_INET) {
    const auto address = [](const SocketAddress& of) {
      return ntohl(reinterpret_cast<const sockaddr_in*>(&of.storage)->sin_addr.s_addr);
    };
    return address(peer) >> 24 == IN_LOOPBACKNET || address(peer) == address(own);
  }
  if (peer.storage.ss_family == AF_INET6) {
    const auto address = [](const SocketAddress& of) {
      return &reinterpret_cast<const sockaddr_in6*>(&of.storage)->sin6_addr;
    };
    return IN6_IS_ADDR_LOOPBACK(address(peer)) || IN6_ARE_ADDR_EQUAL(address(peer), address(own));
  }
  return true;  // no network that is known here
}

bool Enable(int socket) {
  const int on = 1;
  return setsockopt(socket, SOL_SOCKET, SO_ZEROCOPY, &on, sizeof(on)) == 0;
}

// The parts with the small ones copied to `small`.
struct Gathered {
  std::array<iovec, kMaxParts> parts;
  size_t count = 0;
  size_t bytes = 0;
};

Gathered Gather(std::span<const iovec> parts, std::vector<std::byte>& small) {
  Gathered gathered;
  gathered.count = std::min(parts.size(), kMaxParts);
  size_t small_bytes = 0;
  for (const iovec& part : parts.first(gathered.count)) {
    if (IsSmall(part)) small_bytes += part.iov_len;
  }
  small.resize(small_bytes);
  size_t filled = 0;
  for (size_t i = 0; i < gathered.count; ++i) {
    iovec part = parts[i];
    if (IsSmall(part) && part.iov_len > 0) {
      std::memcpy(small.data() + filled, part.iov_base, part.iov_len);
      part.iov_base = small.data() + filled;
      filled += part.iov_len;
    }
    gathered.parts[i] = part;
    gathered.bytes += part.iov_len;
  }
  return gathered;
}

}  // namespace

bool ShallZeroCopy(ZeroCopy wanted, const UniqueFd& socket) {
  switch (wanted) {
    case ZeroCopy::kOff:
      return false;
    case ZeroCopy::kOn:
      return true;
    case ZeroCopy::kAuto:
      break;
  }
  return !IsThisHost(socket);
}

ZeroCopyChannel::ZeroCopyChannel(UniqueFd socket) : socket_(std::move(socket)) {
  if (!Enable(socket_.fd())) GiveUp("the system knows no SO_ZEROCOPY");
}

void ZeroCopyChannel::GiveUp(std::string_view why) {
  if (gave_up_.empty()) gave_up_ = why;
}

ZeroCopyChannel::~ZeroCopyChannel() {
  TakeCompletions();
  if (pending_.empty()) return;
  const linger drop = {.l_onoff = 1, .l_linger = 0};
  setsockopt(socket_.fd(), SOL_SOCKET, SO_LINGER, &drop, sizeof(drop));
}

absl::StatusOr<size_t> ZeroCopyChannel::Read(std::span<const iovec> parts) {
  TakeCompletions();
  return socket_.Read(parts);
}

absl::StatusOr<size_t> ZeroCopyChannel::Write(std::span<const iovec> parts) {
  TakeCompletions();
  return Pays(parts) ? WriteWithoutCopy(parts) : WritePlainly(parts);
}

bool ZeroCopyChannel::Pays(std::span<const iovec> parts) const {
  if (!gave_up_.empty() || pending_.size() >= kMaxPending) return false;
  size_t large_bytes = 0;
  for (const iovec& part : parts) {
    if (!IsSmall(part)) large_bytes += part.iov_len;
  }
  return large_bytes >= kMinWriteBytes;
}

absl::StatusOr<size_t> ZeroCopyChannel::WritePlainly(std::span<const iovec> parts) {
  full_ = false;
  ASSIGN_OR_RETURN(const size_t count, socket_.Write(parts));
  taken_ += count;
  return count;
}

absl::StatusOr<size_t> ZeroCopyChannel::WriteWithoutCopy(std::span<const iovec> parts) {
  Pending pending;
  Gathered gathered = Gather(parts, pending.small_parts);
  const msghdr message = {.msg_iov = gathered.parts.data(), .msg_iovlen = gathered.count};
  ssize_t count = -1;
  do {
    count = sendmsg(fd(), &message, MSG_NOSIGNAL | MSG_ZEROCOPY);
  } while (count < 0 && errno == EINTR);
  // EFAULT: memory whose pages the system cannot hold on to, as drivers' may be.
  if (count < 0 && (errno == ENOBUFS || errno == EFAULT)) {
    GiveUp(errno == ENOBUFS ? "no room for notes on writes under way (net.core.optmem_max)"
                            : "the system cannot hold on to the pages of KV");
    return WritePlainly(parts);
  }
  if (count < 0 && errno != EAGAIN) {
    return Unavailable("connection lost: {}", ErrnoMessage(errno));
  }
  full_ = count < 0 || static_cast<size_t>(count) < gathered.bytes;
  if (count <= 0) return 0;
  pending.begin = taken_;
  taken_ += static_cast<size_t>(count);
  pending_.push_back(std::move(pending));
  ++writes_;
  return static_cast<size_t>(count);
}

void ZeroCopyChannel::TakeCompletions() {
  while (!pending_.empty()) {
    alignas(cmsghdr) std::array<char, 256> control;
    msghdr message = {.msg_control = control.data(), .msg_controllen = control.size()};
    if (recvmsg(fd(), &message, MSG_ERRQUEUE | MSG_DONTWAIT) < 0) return;
    for (cmsghdr* note = CMSG_FIRSTHDR(&message); note != nullptr;
         note = CMSG_NXTHDR(&message, note)) {
      sock_extended_err error;
      if (note->cmsg_len < CMSG_LEN(sizeof(error))) continue;
      std::memcpy(&error, CMSG_DATA(note), sizeof(error));
      if (error.ee_origin != SO_EE_ORIGIN_ZEROCOPY || error.ee_errno != 0) continue;
      Completed(error.ee_info, error.ee_data, (error.ee_code & SO_EE_CODE_ZEROCOPY_COPIED) != 0);
    }
  }
}

// Of the system's numbers `first` to `last`, which count writes and wrap.
void ZeroCopyChannel::Completed(uint32_t first, uint32_t last, bool copied) {
  if (copied) GiveUp("the system copies all the same on the way to this peer");
  for (uint32_t number = first;; ++number) {
    const uint32_t place = number - first_pending_;
    if (place >= pending_.size()) break;  // not ours: no note may make us count on
    pending_[place].done = true;
    if (number == last) break;
  }
  while (!pending_.empty() && pending_.front().done) {
    pending_.pop_front();
    ++first_pending_;
  }
}

}  // namespace tandem
