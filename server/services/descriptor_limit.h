#pragma once

#include "absl/status/statusor.h"

namespace tandem {

// Raises the number of descriptors that this process may open (`ulimit -n`) to what the system
// allows it, and returns that number. The usual soft limit of 1,024 is meant for programs that
// call select(); a server that keeps it turns clients away long before its memory is used up.
// RESOURCE_EXHAUSTED when the system allows fewer than a router or worker needs to start.
absl::StatusOr<int> RaiseDescriptorLimit();

// How many of `limit` descriptors the connections of callers must leave for everything else that
// the process opens: connections to workers and peers, files, epoll sets.
int ReservedDescriptors(int limit);

}  // namespace tandem
