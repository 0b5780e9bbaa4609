#pragma once

#include <netinet/in.h>
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
  kNumericOnly,  // does not leave the process, returns at once
  kByName,       // may ask the network and take seconds
};

// The addresses of a TCP peer, in the system's order of preference, at least one.
// UNAVAILABLE with the system's message.
absl::StatusOr<std::vector<SocketAddress>> Resolve(const HostPort& peer, NameLookup lookup);

// A non-blocking listening socket. UNAVAILABLE with the address.
absl::StatusOr<UniqueFd> Listen(const std::string& host, uint16_t port);

// The port that a listening socket was given.
uint16_t LocalPort(const UniqueFd& listener);

// A connection that a peer made, non-blocking and with SetStreamOptions; not valid() when there is
// none. RESOURCE_EXHAUSTED when the process has no descriptor left.
absl::StatusOr<UniqueFd> AcceptStream(const UniqueFd& listener);

// A non-blocking socket on its way to `address`: writable once that is decided.
absl::StatusOr<UniqueFd> StartConnect(const SocketAddress& address);

// Whether it stands; false while that is not decided. UNAVAILABLE with the system's message.
absl::StatusOr<bool> IsConnected(const UniqueFd& socket);

// No delay for small frames, and an end in bounded time when the peer's machine is gone.
void SetStreamOptions(const UniqueFd& socket);

}  // namespace tandem
