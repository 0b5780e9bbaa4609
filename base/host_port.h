#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tandem {

struct HostPort {
  std::string host;
  std::string port;
};

// Parses "host:port" or "[v6 address]:port". INVALID_ARGUMENT quotes what was given.
absl::StatusOr<HostPort> ParseHostPort(std::string_view address);

// Formats a host and a port as "host:port", with a v6 address in brackets.
std::string HostPortText(std::string_view host, uint16_t port);

// Which machines can connect to a host of this name or address.
enum class HostKind : uint8_t {
  kAnywhere,     // every machine that the network allows
  kThisHost,     // only processes of this machine: localhost, 127.*, ::1
  kUnspecified,  // no machine: 0.0.0.0, ::, or an empty name
};
HostKind KindOfHost(std::string_view host);

}  // namespace tandem
