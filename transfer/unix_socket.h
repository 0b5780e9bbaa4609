#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"

namespace tandem {

// Non-blocking stream sockets in the abstract namespace.

// UNAVAILABLE with the name.
absl::StatusOr<UniqueFd> ListenUnix(const std::string& name);

// Connected when it returns: that takes no waiting. UNAVAILABLE when nobody listens there, or does
// not accept for so long that the queue is full.
absl::StatusOr<UniqueFd> ConnectUnix(const std::string& name);

// Whether the process on the other side (on a connecting socket: that which listens) belongs to
// the same user.
bool PeerIsSameUser(int socket);

inline constexpr size_t kMaxDescriptors = 8;  // of one message

// Sends all of `bytes`, and `descriptors` with them. On a new socket, which has room for so little.
// UNAVAILABLE with the system's message.
absl::Status SendWithDescriptors(int socket, std::span<const std::byte> bytes,
                                 std::span<const int> descriptors);

struct Received {
  size_t count = 0;                   // 0: nothing for now
  std::vector<UniqueFd> descriptors;  // that came with them, at most kMaxDescriptors
};

// UNAVAILABLE when the peer is gone or this process has no room for the descriptors that came,
// FAILED_PRECONDITION when they are more than a message may have.
absl::StatusOr<Received> ReceiveWithDescriptors(int socket, std::span<std::byte> bytes);

}  // namespace tandem
