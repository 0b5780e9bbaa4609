#include "server/services/open_connections.h"

#include <fcntl.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <tuple>
#include <vector>

#include "base/unique_fd.h"

namespace tandem {
namespace {

// 0 for what is no open socket.
ino_t SocketInode(int fd) {
  struct stat info;
  return fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode) ? info.st_ino : 0;
}

// The beginning of the kernel's struct tcp_info. That of the C library ends before the count of bytes.
struct TcpInfo {
  alignas(uint64_t) std::byte other_fields[128];
  uint64_t bytes_received;
};

// How many bytes the peer has sent; 0 where the descriptor is no TCP connection any more.
uint64_t BytesReceived(int fd) {
  TcpInfo info{};
  socklen_t size = sizeof(info);
  if (getsockopt(fd, IPPROTO_TCP, TCP_INFO, &info, &size) != 0) return 0;
  return size < sizeof(info) ? 0 : info.bytes_received;
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
  sockets_[fd] = {.inode = SocketInode(fd), .accepted = accepted};
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
    if (socket.accepted > time) candidates.emplace_back(BytesReceived(fd), socket.accepted, fd);
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

}  // namespace tandem
