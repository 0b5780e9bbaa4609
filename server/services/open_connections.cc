#include "server/services/open_connections.h"

#include <sys/stat.h>

namespace tandem {
namespace {

// 0 for what is no open socket.
ino_t SocketInode(int fd) {
  struct stat info;
  return fstat(fd, &info) == 0 && S_ISSOCK(info.st_mode) ? info.st_ino : 0;
}

}  // namespace

void OpenConnections::Add(int fd) { sockets_[fd] = SocketInode(fd); }

int OpenConnections::Count() {
  absl::erase_if(sockets_, [](const auto& socket) {
    const auto [fd, inode] = socket;
    return SocketInode(fd) != inode;
  });
  return upper_bound();
}

}  // namespace tandem
