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

// A router and workers of one machine, as `tandem up` starts them, or some of them.
struct CheckRequest {
  std::optional<RouterProcessOptions> router;
  std::vector<WorkerOptions> workers;
  PortUse ports = PortUse::kMustBeFree;
  Workload workload;
  // Looked at where no worker has parameters of its own; as `tandem profile` writes it.
  std::string found_parameters = "cost_model.json";
};

struct CheckReport {
  Findings findings;
  std::vector<InspectedWorker> workers;  // those whose model and device can be used
  int64_t memory_limit = 0;              // of the host, in bytes
  std::vector<PlannedLink> links;
  std::string parameters;  // where those of the advice come from; empty: there are none
  std::optional<Advice> advice;
  std::string no_advice;  // why there is none, and what to do
};

// Looks at everything and stops at nothing that can be gone on from. Reads files, opens devices and
// listens on ports for a moment; allocates no weights and no KV.
CheckReport CheckDeployment(const CheckRequest& request, std::chrono::system_clock::time_point now);

}  // namespace tandem
