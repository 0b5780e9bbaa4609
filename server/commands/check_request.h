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
  // "router", a role, or the name of a worker that the file has; empty: what `tandem up` would start.
  std::vector<std::string> parts;
  bool skip_ports = false;
  bool json = false;
};

// The processes to look at. What is wrong with their flags already is an error of `findings`, and such
// a process is left out.
CheckRequest CheckRequestFor(const CheckFlags& flags, Findings& findings);

}  // namespace tandem
