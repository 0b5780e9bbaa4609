#include "server/services/open_connections.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/ioctl.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "base/unique_fd.h"

namespace tandem {
namespace {

// The inode of a socket; 0 if the descriptor is no open socket.
ino_t SocketInode(int fd) {
  struct stat info;
  return fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode) ? info.st_ino : 0;
}

// The beginning of the kernel's struct tcp_info. The struct of the C library ends before the counts
// of bytes and segments.
struct TcpInfo {
  tcp_info known;
  uint64_t other_fields[3];
  uint64_t bytes_received;
  uint32_t more_fields[4];
  uint32_t data_segments_received;
  uint32_t data_segments_sent;
};
static_assert(offsetof(TcpInfo, bytes_received) == 128);

// What the kernel knows about a TCP connection. Nothing where the descriptor is none any more, or
// the kernel (before 4.6) has no such counts.
std::optional<TcpInfo> InfoOf(int fd) {
  TcpInfo info{};
  socklen_t size = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || size < sizeof(info)) return {};
  return info;
}

// For how long neither side has sent anything; if neither ever has, the time since the connection
// was established.
Duration QuietTime(const TcpInfo& info) {
  return std::chrono::milliseconds(
      std::min(info.known.tcpi_last_data_sent, info.known.tcpi_last_data_recv));
}

// Whether bytes have come that this process has not read yet.
bool HasUnreadBytes(int fd) {
  int bytes = 0;
  return ioctl(fd, FIONREAD, &bytes) == 0 && bytes > 0;
}

// Shuts down the socket with that inode. gRPC may close the descriptor at any time, and its number
// may then stand for another connection. A duplicate descriptor cannot change, so the inode is
// compared and the socket shut down through one. False when the socket is gone.
bool ShutDown(int fd, ino_t inode) {
  const UniqueFd duplicate(fcntl(fd, F_DUPFD_CLOEXEC, 0));
  return duplicate.valid() && SocketInode(duplicate.get()) == inode &&
         shutdown(duplicate.get(), SHUT_RDWR) == 0;
}

}  // namespace

void OpenConnections::Add(int fd, TimePoint accepted) {
  const Socket socket = {.inode = SocketInode(fd), .accepted = accepted};
  sockets_[fd] = socket;
  unfinished_.push_back({fd, socket});
}

int OpenConnections::Count() {
  absl::erase_if(sockets_,
                 [](const auto& entry) { return SocketInode(entry.first) != entry.second.inode; });
  return upper_bound();
}

bool OpenConnections::HasAnyAcceptedAfter(TimePoint time) const {
  return std::ranges::any_of(sockets_,
                             [time](const auto& entry) { return entry.second.accepted > time; });
}

int OpenConnections::EvictQuietest(TimePoint time, int most) {
  std::vector<std::tuple<uint64_t, TimePoint, int>> candidates;
  for (const auto& [fd, socket] : sockets_) {
    if (socket.accepted > time) {
      const auto info = InfoOf(fd);
      candidates.emplace_back(info ? info->bytes_received : 0, socket.accepted, fd);
    }
  }
  std::ranges::sort(candidates);
  int evicted = 0;
  for (const auto& [bytes, accepted, fd] : candidates) {
    if (evicted == most) break;
    if (ShutDown(fd, sockets_.at(fd).inode)) ++evicted;
    sockets_.erase(fd);
  }
  return evicted;
}

int OpenConnections::EvictUnfinished(TimePoint time, Duration patience, int most) {
  std::vector<std::pair<Duration, Unfinished>> idle;
  std::vector<Unfinished> left;
  for (const Unfinished& one : unfinished_) {
    if (one.socket.accepted <= time || SocketInode(one.fd) != one.socket.inode) continue;
    const auto info = InfoOf(one.fd);
    if (!info || info->data_segments_received > 1) continue;
    const Duration quiet = QuietTime(*info);
    if (quiet < patience || HasUnreadBytes(one.fd)) {
      left.push_back(one);
    } else {
      idle.emplace_back(quiet, one);
    }
  }
  const size_t unfinished = left.size() + idle.size();
  const size_t excess = unfinished - std::min(unfinished, static_cast<size_t>(most) - 1);
  const size_t evicted = excess <= idle.size() ? excess : 0;
  std::ranges::stable_sort(idle, std::greater(), &std::pair<Duration, Unfinished>::first);
  for (size_t i = 0; i < idle.size(); ++i) {
    const Unfinished& one = idle[i].second;
    if (i >= evicted) {
      left.push_back(one);
      continue;
    }
    // The inode is compared, so that another connection that has the number by now is left alone.
    ShutDown(one.fd, one.socket.inode);
    const auto known = sockets_.find(one.fd);
    if (known != sockets_.end() && known->second.inode == one.socket.inode) sockets_.erase(known);
  }
  unfinished_ = std::move(left);
  return static_cast<int>(evicted);
}

}  // namespace tandem
