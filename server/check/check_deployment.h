#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "server/assembly/router_process_options.h"
#include "server/check/advice.h"
#include "server/check/check_ports.h"
#include "server/check/findings.h"
#include "server/check/inspected_worker.h"
#include "server/check/topology.h"

namespace tandem {

// What `tandem check` is to look at: all or some of the processes that `tandem up` starts on one
// machine.
struct CheckRequest {
  std::optional<RouterProcessOptions> router;
  std::vector<WorkerOptions> workers;
  PortUse ports = PortUse::kMustBeFree;
  Workload workload;
  // A file as `tandem profile` writes it, which is used if it exists and no worker has parameters
  // of its own.
  std::string found_parameters = "cost_model.json";
};

struct CheckReport {
  Findings findings;
  std::vector<InspectedWorker> workers;  // those whose model and device can be used
  int64_t memory_limit = 0;              // of the host, in bytes
  std::vector<PlannedLink> links;
  std::string parameters;  // the source of the advice's latency parameters; empty: there are none
  std::optional<Advice> advice;
  std::string no_advice;  // why there is no advice, and what to do
};

// Looks at all parts of a deployment and continues after an error wherever that is possible. Reads
// files, opens devices and listens on ports for a moment; allocates no weights and no KV.
CheckReport CheckDeployment(const CheckRequest& request, std::chrono::system_clock::time_point now);

}  // namespace tandem
