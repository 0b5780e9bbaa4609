#pragma once

#include <string>

#include "base/log_setup.h"
#include "server/assembly/router_process_options.h"

namespace CLI {
class App;
}

namespace tandem {

struct RouterProcessFlags {
  RouterProcessOptions options;
  std::string tls_clients = "optional";
  int drain_seconds = 30;
  LogSetup log;
  int ready_fd = -1;

  // The options, completed by the flags that are not options themselves. To be called after
  // parsing.
  RouterProcessOptions Complete() const;
};

// The flags of `tandem router`.
void AddRouterProcessFlags(CLI::App& app, RouterProcessFlags& flags);

}  // namespace tandem
