#pragma once

#include <cstdint>
#include <string>
#include <string_view>

#include "absl/status/statusor.h"

namespace tandem {

// Where a process offers shared memory: a name in the abstract namespace of unix sockets, which
// only processes of the same host and network namespace can reach; `host` says which that is.
// As text "HOST-NAME", HOST 16 hexadecimal digits.
struct ShmAddress {
  uint64_t host = 0;
  std::string name;

  std::string Text() const;
};

// INVALID_ARGUMENT quotes what was given.
absl::StatusOr<ShmAddress> ParseShmAddress(std::string_view text);

// Hash of the boot id of this host and of this process' network namespace. UNAVAILABLE when the
// system does not tell them.
absl::StatusOr<uint64_t> ShmHost();

// A new name that nobody can guess. UNAVAILABLE without randomness.
absl::StatusOr<std::string> NewShmName();

}  // namespace tandem
