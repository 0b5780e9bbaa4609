#include "server/services/open_connections.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <tuple>
#include <utility>
#include <vector>

#include "base/unique_fd.h"

namespace tandem {
namespace {

// 0 for what is no open socket.
ino_t SocketInode(int fd) {
  struct stat info;
  return fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode) ? info.st_ino : 0;
}

// The beginning of the kernel's struct tcp_info. That of the C library ends before these counts.
struct TcpInfo {
  alignas(uint64_t) std::byte other_fields[128];
  uint64_t bytes_received;
  uint32_t more_fields[4];
  uint32_t data_segments_received;
  uint32_t data_segments_sent;
};

// Nothing where the descriptor is no TCP connection any more, or the kernel (before 4.6) does not count them.
std::optional<TcpInfo> InfoOf(int fd) {
  TcpInfo info{};
  socklen_t size = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0 || size < sizeof(info)) return {};
  return info;
}

// gRPC may close the descriptor at any time, and its number may then stand for another connection. A
// duplicate cannot change, so the socket is compared and shut down through one. False when it is gone.
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

int OpenConnections::EvictUnfinished(TimePoint time, TimePoint answered, int most) {
  std::vector<Unfinished> idle, left;
  for (const Unfinished& one : unfinished_) {
    if (one.socket.accepted <= time || SocketInode(one.fd) != one.socket.inode) continue;
    const auto info = InfoOf(one.fd);
    if (!info || info->data_segments_received > 1) continue;
    const bool waits_for_an_answer = one.socket.accepted > answered &&
                                     info->data_segments_received == 1 &&
                                     info->data_segments_sent == 0;
    (waits_for_an_answer ? left : idle).push_back(one);
  }
  const auto unfinished = static_cast<int>(left.size() + idle.size());
  const int evicted = std::clamp(unfinished - most + 1, 0, static_cast<int>(idle.size()));
  for (const Unfinished& one : std::span(idle).first(static_cast<size_t>(evicted))) {
    // Its number may stand for another connection by now, which is left alone.
    ShutDown(one.fd, one.socket.inode);
    const auto known = sockets_.find(one.fd);
    if (known != sockets_.end() && known->second.inode == one.socket.inode) sockets_.erase(known);
  }
  left.insert(left.end(), idle.begin() + evicted, idle.end());
  std::ranges::sort(left, {}, [](const Unfinished& one) { return one.socket.accepted; });
  unfinished_ = std::move(left);
  return evicted;
}

}  // namespace tandem
