#pragma once

#include <string>
#include <vector>

#include "server/check/check_deployment.h"
#include "server/commands/up_flags.h"

namespace tandem {

// The flags of `tandem check`.
struct CheckFlags {
  UpFlags up;
  Workload workload;
  // The processes to check: "router", a role, or the name of a worker in the file; empty: all that
  // `tandem up` would start.
  std::vector<std::string> parts;
  bool skip_ports = false;
  bool json = false;
};

// Makes a request for the processes to check. A process whose flags are invalid is an error in
// `findings` and is left out of the request.
CheckRequest CheckRequestFor(const CheckFlags& flags, Findings& findings);

}  // namespace tandem
