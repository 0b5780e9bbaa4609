#include <string>

#include "CLI/CLI.hpp"
#include "fmt/ranges.h"
#include "kernels/registry.h"
#include "router/policy/policies.h"
#include "router/policy/routing_policy.h"
#include "server/commands/commands.h"
#include "server/commands/version.h"

namespace tandem {

void AddVersionCommand(CLI::App& app, Action& chosen) {
  CLI::App* version = app.add_subcommand("version", "Print the version and what is built in");
  version->callback([&chosen] {
    chosen = [] {
      fmt::print("tandem {}\ndevices: {}\n", kVersion, fmt::join(BackendNames(), ", "));
      if (const absl::Status gpu = GpuStatus(); !gpu.ok()) {
        fmt::print("no GPU: {}\n", std::string(gpu.message()));
      }
      fmt::print("routing policies: {}\n", fmt::join(RoutingPolicyNames(), ", "));
      return kExitOk;
    };
  });
}

}  // namespace tandem
