#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <string>

#include "absl/status/statusor.h"
#include "transfer/unique_fd.h"

namespace tandem {

// Non-blocking stream sockets in the abstract namespace.

// UNAVAILABLE with the name.
absl::StatusOr<UniqueFd> ListenUnix(const std::string& name);

// Connected when it returns: that takes no waiting. UNAVAILABLE when nobody listens there, or does
// not accept for so long that the queue is full.
absl::StatusOr<UniqueFd> ConnectUnix(const std::string& name);

// Whether the process on the other side (on a connecting socket: that which listens) belongs to
// the same user.
bool PeerIsSameUser(const UniqueFd& socket);

// Sends all of `bytes`, and `descriptor` with them unless it is -1. On a new socket, which has room
// for so little. UNAVAILABLE with the system's message.
absl::Status SendWithDescriptor(const UniqueFd& socket, std::span<const std::byte> bytes,
                                int descriptor);

struct Received {
  size_t count = 0;     // 0: nothing for now
  UniqueFd descriptor;  // that came with them, of several the first
};

// UNAVAILABLE when the peer is gone.
absl::StatusOr<Received> ReceiveWithDescriptor(const UniqueFd& socket, std::span<std::byte> bytes);

}  // namespace tandem
