#pragma once

#include <string>

#include "base/log_setup.h"
#include "server/assembly/worker_options.h"

namespace CLI {
class App;
}

namespace tandem {

struct WorkerFlags {
  WorkerOptions options;  // without the role
  std::string role;
  int drain_seconds = 30;
  LogSetup log;
  int ready_fd = -1;
};

// The flags of `tandem worker`.
void AddWorkerFlags(CLI::App& app, WorkerFlags& flags);

// The role named by the flag --role: "prefill", "decode" or "unified".
Role RoleNamed(const std::string& role);

}  // namespace tandem
