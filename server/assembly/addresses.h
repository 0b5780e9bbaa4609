#pragma once

#include "absl/status/status.h"
#include "server/assembly/worker_options.h"

namespace tandem {

// Checks, as far as the flags show, that others can connect to the addresses that a worker
// announces, and the worker to its routers. INVALID_ARGUMENT names the flag. What looks wrong but
// may be intended is logged as a warning.
absl::Status CheckAddresses(const WorkerOptions& options);

}  // namespace tandem
