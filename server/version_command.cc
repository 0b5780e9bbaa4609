#include "CLI/CLI.hpp"
#include "fmt/ranges.h"
#include "kernels/registry.h"
#include "router/routing_policy.h"
#include "server/commands.h"
#include "server/version.h"

namespace tandem {

void AddVersionCommand(CLI::App& app, Action& chosen) {
  CLI::App* version = app.add_subcommand("version", "Print the version and what is built in");
  version->callback([&chosen] {
    chosen = [] {
      fmt::print("tandem {}\ndevices: {}\nrouting policies: {}\n", kVersion,
                 fmt::join(BackendNames(), ", "), fmt::join(RoutingPolicyNames(), ", "));
      return kExitOk;
    };
  });
}

}  // namespace tandem
