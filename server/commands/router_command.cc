#include <chrono>
#include <memory>

#include "CLI/CLI.hpp"
#include "base/log.h"
#include "base/status.h"
#include "server/assembly/router_process.h"
#include "server/commands/child_process.h"
#include "server/commands/commands.h"
#include "server/commands/heap_trimmer.h"
#include "server/commands/router_process_flags.h"
#include "server/commands/signals.h"
#include "server/services/descriptor_limit.h"

namespace tandem {
namespace {

// Serves until SIGTERM or SIGINT, then drains.
absl::Status ServeUntilTerminated(const RouterProcessFlags& flags) {
  ASSIGN_OR_RETURN(const std::unique_ptr<RouterProcess> router,
                   RouterProcess::Start(flags.Complete()));
  LogInfo("router ready address={} model={}", router->address(), router->model());
  TellReady(flags.ready_fd, router->address());
  HeapTrimmer heap;
  WaitForTermination(kTrimInterval, [&heap] { heap.TrimIfMuchIsFree(); });
  LogInfo("draining seconds={}", flags.drain_seconds);
  router->Drain(std::chrono::steady_clock::now() + std::chrono::seconds(flags.drain_seconds));
  LogInfo("ended");
  return absl::OkStatus();
}

int RunRouter(const RouterProcessFlags& flags) {
  BlockTerminationSignals();
  absl::Status status = RaiseDescriptorLimit().status();
  if (status.ok()) status = SetUpLogging(flags.log, "router");
  if (status.ok()) status = ServeUntilTerminated(flags);
  return status.ok() ? kExitOk : FailStart(flags.ready_fd, status);
}

}  // namespace

void AddRouterCommand(CLI::App& app, Action& chosen) {
  auto flags = std::make_shared<RouterProcessFlags>();
  CLI::App* router =
      app.add_subcommand("router", "Take clients' requests and send them to workers");
  AddRouterProcessFlags(*router, *flags);
  router->footer(
      "Example:\n"
      "  tandem router --model models/sample --host 0.0.0.0 --port 8080");
  router->callback([flags, &chosen] { chosen = [flags] { return RunRouter(*flags); }; });
}

}  // namespace tandem
