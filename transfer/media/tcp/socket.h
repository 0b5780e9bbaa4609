#pragma once

#include <sys/socket.h>

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/host_port.h"
#include "base/unique_fd.h"

namespace tandem {

struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

enum class NameLookup : uint8_t {
  kNumericOnly,  // returns at once, without any lookup
  kByName,       // may ask a name server and take seconds
};

// The addresses of a TCP peer, in the system's order of preference and never empty. UNAVAILABLE
// with the system's message.
absl::StatusOr<std::vector<SocketAddress>> Resolve(const HostPort& peer, NameLookup lookup);

// A non-blocking listening socket. UNAVAILABLE names the address.
absl::StatusOr<UniqueFd> Listen(const std::string& host, uint16_t port);

// Listening sockets as from Listen, on every address of `host` with the same port, and with room
// for many callers that wait to be accepted. At least one socket; the error is that of the last
// address.
absl::StatusOr<std::vector<UniqueFd>> ListenEverywhere(const std::string& host, uint16_t port);

// The port that a listening socket was given.
uint16_t LocalPort(const UniqueFd& listener);

// A non-blocking socket that connects to `address`. It becomes writable when that has succeeded or
// failed.
absl::StatusOr<UniqueFd> StartConnect(const SocketAddress& address);

// Whether the socket of StartConnect is connected; false while it still connects. UNAVAILABLE with
// the system's message.
absl::StatusOr<bool> IsConnected(const UniqueFd& socket);

// Makes a socket send small frames without delay, and end the connection in bounded time when the
// peer's machine is gone.
void SetStreamOptions(const UniqueFd& socket);

}  // namespace tandem
