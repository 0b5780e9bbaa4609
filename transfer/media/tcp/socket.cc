#include "transfer/media/tcp/socket.h"

#include <fcntl.h>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>

#include <cerrno>
#include <memory>

#include "base/check.h"
#include "base/status.h"
#include "transfer/media/socket_channel.h"

namespace tandem {
namespace {

// How long the peer's system may leave bytes unacknowledged before the connection ends.
constexpr int kUntakenMilliseconds = 5000;
// A peer whose machine vanished while nothing was under way is noticed after about 10 + 5 seconds,
// because kUntakenMilliseconds also applies to the answer to a keep-alive probe.
constexpr int kKeepIdleSeconds = 10;
constexpr int kKeepIntervalSeconds = 5;
// The number of connections that may wait to be accepted; the system may allow fewer
// (net.core.somaxconn).
constexpr int kCallersBacklog = 4096;

void SetInt(const UniqueFd& socket, int level, int option, int value) {
  const int result = setsockopt(socket.get(), level, option, &value, sizeof(value));
  TANDEM_CHECK(result == 0, "setsockopt of an option that every TCP socket has");
}

std::string NumericHost(const SocketAddress& address) {
  char host[NI_MAXHOST];
  const int error = getnameinfo(reinterpret_cast<const sockaddr*>(&address.storage), address.size,
                                host, sizeof(host), nullptr, 0, NI_NUMERICHOST);
  return error == 0 ? host : "";
}

}  // namespace

absl::StatusOr<std::vector<SocketAddress>> Resolve(const HostPort& peer, NameLookup lookup) {
  addrinfo hints{};
  hints.ai_family = AF_UNSPEC;
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV | (lookup == NameLookup::kNumericOnly ? AI_NUMERICHOST : 0);
  addrinfo* found = nullptr;
  if (const int error = getaddrinfo(peer.host.c_str(), peer.port.c_str(), &hints, &found);
      error != 0) {
    return Unavailable("cannot resolve host \"{}\": {}", peer.host, gai_strerror(error));
  }
  const std::unique_ptr<addrinfo, decltype(&freeaddrinfo)> owner(found, &freeaddrinfo);
  std::vector<SocketAddress> addresses;
  for (const addrinfo* info = found; info != nullptr; info = info->ai_next) {
    SocketAddress& address = addresses.emplace_back();
    std::copy_n(reinterpret_cast<const char*>(info->ai_addr), info->ai_addrlen,
                reinterpret_cast<char*>(&address.storage));
    address.size = info->ai_addrlen;
  }
  return addresses;
}

absl::StatusOr<UniqueFd> Listen(const std::string& host, uint16_t port) {
  ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses,
                   Resolve({.host = host, .port = std::to_string(port)}, NameLookup::kByName));
  const SocketAddress& address = addresses.front();
  UniqueFd listener(
      socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  const auto failed = [&](const char* call) {
    return Unavailable("cannot listen on {}:{}: {}: {}", host, port, call, ErrnoMessage(errno));
  };
  if (!listener.valid()) return failed("socket");
  SetInt(listener, SOL_SOCKET, SO_REUSEADDR, 1);
  // On "::" IPv4 is served as well, whatever net.ipv6.bindv6only says.
  if (address.storage.ss_family == AF_INET6) SetInt(listener, IPPROTO_IPV6, IPV6_V6ONLY, 0);
  const auto* name = reinterpret_cast<const sockaddr*>(&address.storage);
  if (bind(listener.get(), name, address.size) != 0) return failed("bind");
  if (listen(listener.get(), kListenBacklog) != 0) return failed("listen");
  return listener;
}

absl::StatusOr<std::vector<UniqueFd>> ListenEverywhere(const std::string& host, uint16_t port) {
  ASSIGN_OR_RETURN(const std::vector<SocketAddress> addresses,
                   Resolve({.host = host, .port = std::to_string(port)}, NameLookup::kByName));
  std::vector<UniqueFd> listeners;
  absl::Status error;
  for (const SocketAddress& address : addresses) {
    auto listener = Listen(NumericHost(address), port);
    if (!listener.ok()) {
      error = listener.status();
      continue;
    }
    listen(listener->get(), kCallersBacklog);
    if (port == 0) port = LocalPort(*listener);
    listeners.push_back(*std::move(listener));
  }
  if (listeners.empty()) return error;
  return listeners;
}

uint16_t LocalPort(const UniqueFd& listener) {
  SocketAddress address{.size = sizeof(sockaddr_storage)};
  auto* name = reinterpret_cast<sockaddr*>(&address.storage);
  TANDEM_CHECK(getsockname(listener.get(), name, &address.size) == 0, "getsockname of a listener");
  return ntohs(address.storage.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(name)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(name)->sin_port);
}

absl::StatusOr<UniqueFd> StartConnect(const SocketAddress& address) {
  UniqueFd fd(socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.valid()) return Unavailable("cannot open a socket: {}", ErrnoMessage(errno));
  SetStreamOptions(fd);
  const auto* name = reinterpret_cast<const sockaddr*>(&address.storage);
  if (connect(fd.get(), name, address.size) != 0 && errno != EINPROGRESS) {
    return Unavailable("cannot connect: {}", ErrnoMessage(errno));
  }
  return fd;
}

absl::StatusOr<bool> IsConnected(const UniqueFd& socket) {
  pollfd decided = {.fd = socket.get(), .events = POLLOUT};
  if (poll(&decided, 1, 0) <= 0) return false;
  int error = 0;
  socklen_t size = sizeof(error);
  TANDEM_CHECK(getsockopt(socket.get(), SOL_SOCKET, SO_ERROR, &error, &size) == 0,
               "SO_ERROR of a socket");
  if (error == 0) return true;
  return Unavailable("cannot connect: {}", ErrnoMessage(error));
}

void SetStreamOptions(const UniqueFd& socket) {
  SetInt(socket, IPPROTO_TCP, TCP_NODELAY, 1);
  SetInt(socket, IPPROTO_TCP, TCP_USER_TIMEOUT, kUntakenMilliseconds);
  SetInt(socket, SOL_SOCKET, SO_KEEPALIVE, 1);
  SetInt(socket, IPPROTO_TCP, TCP_KEEPIDLE, kKeepIdleSeconds);
  SetInt(socket, IPPROTO_TCP, TCP_KEEPINTVL, kKeepIntervalSeconds);
}

}  // namespace tandem
