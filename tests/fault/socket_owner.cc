#include "tests/fault/socket_owner.h"

#include <filesystem>
#include <fstream>
#include <set>
#include <sstream>
#include <string>

#include "fmt/format.h"

namespace tandem {
namespace {

// Inodes of the TCP sockets with this local port, as links in /proc/<pid>/fd show them.
std::set<std::string> SocketsAt(uint16_t local_port) {
  std::set<std::string> sockets;
  const std::string port = fmt::format(":{:04X}", local_port);
  std::ifstream table("/proc/net/tcp");
  std::string line;
  while (std::getline(table, line)) {
    // sl local_address rem_address st queues tr+when retrnsmt uid timeout inode
    std::istringstream fields(line);
    std::string field, local, inode;
    for (int i = 0; i < 10 && fields >> field; ++i) {
      if (i == 1) local = field;
      if (i == 9) inode = field;
    }
    if (local.ends_with(port)) sockets.insert(fmt::format("socket:[{}]", inode));
  }
  return sockets;
}

}  // namespace

bool OwnsSocket(pid_t pid, uint16_t local_port) {
  const std::set<std::string> sockets = SocketsAt(local_port);
  std::error_code error;
  std::filesystem::directory_iterator file(fmt::format("/proc/{}/fd", pid), error);
  for (; !error && file != std::filesystem::directory_iterator(); file.increment(error)) {
    std::error_code gone;  // closed meanwhile
    const auto target = std::filesystem::read_symlink(file->path(), gone);
    if (!gone && sockets.contains(target.string())) return true;
  }
  return false;
}

}  // namespace tandem
