#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

// The address at which a process listens for others of its host: a name in the abstract namespace
// of unix sockets. Only processes of the same host and network namespace can reach it; `host`
// identifies both. The text form is "HOST-NAME", where HOST has 16 hexadecimal digits.
struct HostAddress {
  uint64_t host = 0;
  std::string name;

  std::string Text() const;
};

// INVALID_ARGUMENT quotes the text.
absl::StatusOr<HostAddress> ParseHostAddress(std::string_view text);

// Makes an address of this host with a new name that nobody can guess. `host` is a hash of the boot
// id and the network namespace. UNAVAILABLE when the system gives either of these or random bytes
// not.
absl::StatusOr<HostAddress> NewHostAddress();

}  // namespace tandem
