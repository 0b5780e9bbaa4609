#pragma once

#include <string>
#include <vector>

#include "server/check/findings.h"
#include "server/check/inspected_worker.h"

namespace tandem {

// How KV would travel from a prefill worker to a decode worker of this machine.
struct PlannedLink {
  std::string from;
  std::string to;
  std::string transport;  // one of kTransports; empty: they have none in common
  struct Left {
    std::string transport;
    std::string reason;
  };
  std::vector<Left> left_out;  // those that would be preferred, or all, and why they are not taken
};

// The link of each prefill worker to each decode worker: the first of kTransports that both may
// offer. A pair without one is an error.
std::vector<PlannedLink> PlanLinks(const std::vector<InspectedWorker>& workers, Findings& findings);

}  // namespace tandem
