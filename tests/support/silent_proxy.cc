#include "tests/support/silent_proxy.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <cerrno>

#include "base/check.h"

namespace tandem {
namespace {

UniqueFd ListenHere() {
  auto listener = Listen("127.0.0.2", 0);
  TANDEM_CHECK(listener.ok(), "listen");
  return *std::move(listener);
}

UniqueFd ConnectTo(uint16_t port) {
  UniqueFd connected(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  const auto* to = reinterpret_cast<const sockaddr*>(&address);
  if (connect(connected.get(), to, sizeof(address)) != 0) return UniqueFd();
  return connected;
}

}  // namespace

SilentProxy::SilentProxy()
    : listener_(ListenHere()), wake_(eventfd(0, EFD_CLOEXEC)), thread_([this] { Run(); }) {}

SilentProxy::~SilentProxy() {
  Set(Mode::kStop);
  thread_.join();
}

void SilentProxy::Set(Mode mode) {
  mode_ = mode;
  const uint64_t one = 1;
  TANDEM_CHECK(write(wake_.get(), &one, sizeof(one)) == sizeof(one), "write to an eventfd");
}

void SilentProxy::Run() {
  while (mode_ != Mode::kStop) {
    std::vector<pollfd> watched = {{wake_.get(), POLLIN, 0}, {listener_.get(), POLLIN, 0}};
    if (mode_ == Mode::kForward) {
      for (const Direction& direction : directions_) watched.push_back({direction.from, POLLIN, 0});
    }
    if (poll(watched.data(), watched.size(), -1) < 0) {
      TANDEM_CHECK(errno == EINTR, "poll");
      continue;
    }
    std::vector<Direction> left = watched.size() > 2 ? std::vector<Direction>() : directions_;
    for (size_t i = 2; i < watched.size(); ++i) {
      const Direction& direction = directions_[i - 2];
      if (watched[i].revents == 0 || Pass(direction)) left.push_back(direction);
    }
    directions_ = std::move(left);
    if (watched[1].revents != 0) Accept();
    uint64_t ignored = 0;
    if (watched[0].revents != 0) {
      [[maybe_unused]] const ssize_t count = read(wake_.get(), &ignored, sizeof(ignored));
    }
  }
}

void SilentProxy::Accept() {
  UniqueFd accepted(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  if (!accepted.valid()) return;
  UniqueFd connected = ConnectTo(port());
  if (!connected.valid()) return;
  directions_.push_back({accepted.get(), connected.get()});
  directions_.push_back({connected.get(), accepted.get()});
  sockets_.push_back(std::move(accepted));
  sockets_.push_back(std::move(connected));
}

bool SilentProxy::Pass(const Direction& direction) {
  char buffer[65536];
  const ssize_t count = recv(direction.from, buffer, sizeof(buffer), 0);
  if (count <= 0) {
    shutdown(direction.to, SHUT_WR);
    return false;
  }
  for (ssize_t done = 0; done < count;) {
    const ssize_t sent =
        send(direction.to, buffer + done, static_cast<size_t>(count - done), MSG_NOSIGNAL);
    if (sent < 0) return false;
    done += sent;
  }
  return true;
}

}  // namespace tandem
