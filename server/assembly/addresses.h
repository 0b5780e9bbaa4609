#pragma once

#include "absl/status/status.h"
#include "server/assembly/worker_options.h"

namespace tandem {

// Whether others can connect to what a worker will say of itself, and it to its routers, as far as
// the flags tell. INVALID_ARGUMENT names the flag. What may be meant so is a warning in the log.
absl::Status CheckAddresses(const WorkerOptions& options);

}  // namespace tandem
