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

// "host:port" or "[v6 address]:port". INVALID_ARGUMENT quotes what was given.
absl::StatusOr<HostPort> ParseHostPort(std::string_view address);

// "host:port", with a v6 address in brackets.
std::string HostPortText(std::string_view host, uint16_t port);

// What the name of a host, or its address, says of who can connect to it.
enum class HostKind : uint8_t {
  kAnywhere,     // whoever the network lets
  kThisHost,     // only processes here: localhost, 127.*, ::1
  kUnspecified,  // nobody: 0.0.0.0, ::, nothing
};
HostKind KindOfHost(std::string_view host);

}  // namespace tandem
