#include "tests/support/raw_connections.h"

#include <poll.h>
#include <sys/socket.h>

#include <chrono>

#include "base/host_port.h"
#include "gtest/gtest.h"
#include "transfer/media/tcp/socket.h"

namespace tandem {
namespace {

constexpr std::chrono::minutes kTimeout(1);

// Whether the other side has closed it; what it sent is thrown away.
bool IsClosed(const UniqueFd& socket) {
  char buffer[4096];
  ssize_t count;
  while ((count = recv(socket.get(), buffer, sizeof(buffer), MSG_DONTWAIT)) > 0) {
  }
  return count == 0 || (errno != EAGAIN && errno != EINTR);
}

}  // namespace

RawConnections::RawConnections(const std::string& address, int count) {
  const auto peer = ParseHostPort(address);
  EXPECT_TRUE(peer.ok()) << peer.status();
  const auto resolved = Resolve(*peer, NameLookup::kNumericOnly);
  EXPECT_TRUE(resolved.ok()) << resolved.status();
  for (int i = 0; i < count; ++i) {
    UniqueFd made(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    const auto* name = reinterpret_cast<const sockaddr*>(&resolved->front().storage);
    EXPECT_EQ(connect(made.get(), name, resolved->front().size), 0) << ErrnoMessage(errno);
    sockets_.push_back(std::move(made));
  }
}

void RawConnections::Send(const std::string& bytes) {
  for (const UniqueFd& socket : sockets_) {
    send(socket.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
  }
}

bool RawConnections::AwaitClosed(int count) {
  const auto deadline = std::chrono::steady_clock::now() + kTimeout;
  std::vector<pollfd> open;
  for (const UniqueFd& socket : sockets_) open.push_back({socket.get(), POLLIN, 0});
  while (true) {
    int closed = 0;
    for (size_t i = 0; i < open.size(); ++i) {
      if (open[i].fd >= 0 && IsClosed(sockets_[i])) open[i].fd = -1;
      if (open[i].fd < 0) ++closed;
    }
    if (closed >= count) return true;
    if (std::chrono::steady_clock::now() >= deadline) return false;
    poll(open.data(), open.size(), 1000);
  }
}

std::string RawConnections::Receive(size_t size) {
  std::string bytes;
  char buffer[4096];
  pollfd readable = {sockets_.front().get(), POLLIN, 0};
  while (bytes.size() < size &&
         poll(&readable, 1, std::chrono::milliseconds(kTimeout).count()) > 0) {
    const ssize_t count = recv(readable.fd, buffer, sizeof(buffer), 0);
    if (count <= 0) break;
    bytes.append(buffer, static_cast<size_t>(count));
  }
  return bytes;
}

}  // namespace tandem
