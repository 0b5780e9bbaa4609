#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

// One way to a peer: the transport, and the peer's address of that transport.
struct Endpoint {
  std::string transport;  // "shm", "tcp"
  std::string address;    // "127.0.0.1:7001"

  friend bool operator==(const Endpoint&, const Endpoint&) = default;
};

inline constexpr size_t kMaxEndpoints = 8;
inline constexpr size_t kMaxEndpointBytes = 512;  // of one, as text

// "shm:NAME tcp:host:port": best first, one space between. Total over any text.
// INVALID_ARGUMENT, naming the part, for an empty list, one without transport or address, a
// transport that is no word of small letters and digits or comes twice, and for what is too long.
absl::StatusOr<std::vector<Endpoint>> ParseEndpoints(std::string_view text);
std::string ToText(std::span<const Endpoint> endpoints);

}  // namespace tandem
