#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "server/commands/up_flags.h"

namespace tandem {

struct PlannedWorker {
  std::string name;  // "decode-0"
  FlagValues flags;  // of `tandem worker`, all but --router
};

// The processes that `tandem up` starts.
struct UpPlan {
  std::string model;  // the name that it is served under
  FlagValues router;  // flags of `tandem router`, all but --port and --http-port
  std::vector<PlannedWorker> workers;
};

// The address on which workers listen when a router listens on `host`: loopback where that is a
// wildcard address, because workers are called from this machine only.
std::string WorkersHost(const std::string& host);

// The flags of workers that were given to the command itself, on its command line or in [up].
FlagValues ExplicitWorkerFlags(const UpFlags& flags);

// What these flags ask for. The command line and [up] beat the sections of the file for a router
// and for workers. Reads no weights. INVALID_ARGUMENT says which flag is missing or at fault.
absl::StatusOr<UpPlan> PlanUp(const UpFlags& flags);

// INVALID_ARGUMENT where the workers of the plan offer no route: neither a unified worker nor a
// pair of prefill and decode workers.
absl::Status CheckRoutes(const UpPlan& plan);

}  // namespace tandem
