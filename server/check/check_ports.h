#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "server/check/findings.h"

namespace tandem {

// A port that a process is to listen on; 0: any, which is always there.
struct WantedPort {
  std::string part;  // the process, as "router"
  std::string flag;  // the flag that sets the port, as "--port"
  std::string host;
  uint16_t port = 0;
};

enum class PortUse : uint8_t {
  kMustBeFree,
  kNotAsked,  // only whether two processes want the same one
};

// Finds ports that two processes want, and those that cannot be listened on, by listening on them
// for a moment.
void CheckPorts(const std::vector<WantedPort>& ports, PortUse use, Findings& findings);

}  // namespace tandem
