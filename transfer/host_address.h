#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

namespace tandem {

// Where a process listens for others of its host: a name in the abstract namespace of unix sockets,
// which only processes of the same host and network namespace can reach; `host` says which that is.
// As text "HOST-NAME", HOST 16 hexadecimal digits.
struct HostAddress {
  uint64_t host = 0;
  std::string name;

  std::string Text() const;
};

// INVALID_ARGUMENT quotes what was given.
absl::StatusOr<HostAddress> ParseHostAddress(std::string_view text);

// An address here with a new name that nobody can guess. UNAVAILABLE when the system tells neither
// the boot id nor the network namespace, of which `host` is a hash, or has no randomness.
absl::StatusOr<HostAddress> NewHostAddress();

}  // namespace tandem
