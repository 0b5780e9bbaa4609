#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace tandem {

// Non-blocking stream sockets in the abstract namespace.

// Listens on the unix socket with this name. UNAVAILABLE names the socket.
absl::StatusOr<UniqueFd> ListenUnix(const std::string& name);

// Returns a socket that is connected to `name`, without waiting. UNAVAILABLE when no process
// listens there or its queue is full.
absl::StatusOr<UniqueFd> ConnectUnix(const std::string& name);

// Whether the peer belongs to the same user as this process. For a connecting socket the peer is
// the process that listens.
bool PeerIsSameUser(int socket);

inline constexpr size_t kMaxDescriptors = 8;  // the most in one message

// Sends all of `bytes` together with `descriptors`. The socket must be new, so that it has room.
// UNAVAILABLE with the system's message.
absl::Status SendWithDescriptors(int socket, std::span<const std::byte> bytes,
                                 std::span<const int> descriptors);

struct Received {
  size_t count = 0;                   // bytes; 0 when none have come yet
  std::vector<UniqueFd> descriptors;  // at most kMaxDescriptors
};

// Receives what has come, without waiting. UNAVAILABLE when the peer is gone or this process cannot
// hold the descriptors that came, FAILED_PRECONDITION when a message has more than kMaxDescriptors.
absl::StatusOr<Received> ReceiveWithDescriptors(int socket, std::span<std::byte> bytes);

}  // namespace tandem
