#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

// Where a peer listens: a transport, and the peer's address in the form of that transport.
struct Endpoint {
  std::string transport;  // "shm", "tcp"
  std::string address;    // "127.0.0.1:7001"

  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

inline constexpr size_t kMaxEndpoints = 8;
inline constexpr size_t kMaxEndpointBytes = 512;  // the most bytes of an endpoint, as text

// Parses "shm:NAME tcp:host:port": the preferred endpoint first, one space between two. Any text
// may be given. INVALID_ARGUMENT names the part that is wrong: an empty list, an endpoint without
// transport or address, a transport that is not a word of lower-case letters and digits or that
// comes twice, or a text that is too long.
absl::StatusOr<std::vector<Endpoint>> ParseEndpoints(std::string_view text);
std::string ToText(std::span<const Endpoint> endpoints);

}  // namespace tandem
