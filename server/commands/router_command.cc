#include <chrono>
#include <memory>
#include <string>

#include "CLI/CLI.hpp"
#include "base/log.h"
#include "base/status.h"
#include "server/assembly/router_process.h"
#include "server/commands/child_process.h"
#include "server/commands/commands.h"
#include "server/commands/flags.h"
#include "server/commands/http_flags.h"
#include "server/commands/number_flag.h"
#include "server/commands/router_flags.h"
#include "server/commands/server_limit_flags.h"
#include "server/commands/signals.h"
#include "server/commands/tls_flags.h"
#include "server/commands/trace_flags.h"
#include "server/commands/version.h"
#include "server/services/descriptor_limit.h"

namespace tandem {
namespace {

struct RouterFlags {
  RouterProcessOptions options;
  std::string tls_clients = "optional";
  int drain_seconds = 30;
  LogSetup log;
  int ready_fd = -1;
};

// Serves until SIGTERM or SIGINT, then drains.
absl::Status ServeUntilTerminated(const RouterFlags& flags) {
  ASSIGN_OR_RETURN(const std::unique_ptr<RouterProcess> router,
                   RouterProcess::Start(flags.options));
  LogInfo("router ready address={} model={}", router->address(), router->model());
  TellReady(flags.ready_fd, router->address());
  WaitForTermination();
  LogInfo("draining seconds={}", flags.drain_seconds);
  router->Drain(std::chrono::steady_clock::now() + std::chrono::seconds(flags.drain_seconds));
  LogInfo("ended");
  return absl::OkStatus();
}

int RunRouter(RouterFlags flags) {
  flags.options.build = kVersion;
  flags.options.trace.environment = ReadTraceEnvironment();
  flags.options.require_client_certificates = flags.tls_clients == "require";
  BlockTerminationSignals();
  absl::Status status = RaiseDescriptorLimit().status();
  if (status.ok()) status = SetUpLogging(flags.log, "router");
  if (status.ok()) status = ServeUntilTerminated(flags);
  return status.ok() ? kExitOk : FailStart(flags.ready_fd, status);
}

}  // namespace

void AddRouterCommand(CLI::App& app, Action& chosen) {
  auto flags = std::make_shared<RouterFlags>();
  RouterProcessOptions& options = flags->options;
  options.port = kDefaultPort;
  CLI::App* router =
      app.add_subcommand("router", "Take clients' requests and send them to workers");
  router->add_option("--model", options.model_dir,
                     "directory with config.json and tokenizer.json; weights are not read");
  router->add_option(
      "--simulated", options.simulated,
      "parameter file of the workers' --device simulated:FILE; prompts are token ids "
      "unless --model has a tokenizer");
  router->add_option("--model-name", options.model_name,
                     "served under this name; default: its folder");
  router->add_option("--port", options.port, "0: a free one")->capture_default_str();
  router->add_option("--host", options.host, "address to listen on")->capture_default_str();
  AddMetricsFlag(*router, options.metrics_port);
  router->add_option("--http-port", options.http_port,
                     "serve HTTP there; 0: a free one; default: not at all");
  AddHttpFlags(*router, options.http);
  AddAccessFlag(*router, options.access_file);
  router
      ->add_option("--drain-seconds", flags->drain_seconds,
                   "at SIGTERM, how long requests may still take")
      ->check(NotNegative())
      ->capture_default_str();
  AddRouterFlags(*router, options.tuning);
  AddTraceFlags(*router, options.trace);
  AddTraceFileFlag(*router, options.trace);
  AddServerLimitFlags(*router, options.server);
  AddPortTlsFlags(*router, options.tls);
  AddTlsClientsFlag(*router, flags->tls_clients);
  AddLogFlags(*router, flags->log);
  AddReadyFlag(*router, flags->ready_fd);
  router->footer(
      "Example:\n"
      "  tandem router --model models/sample --host 0.0.0.0 --port 8080");
  router->callback([flags, &chosen] { chosen = [flags] { return RunRouter(*flags); }; });
}

}  // namespace tandem
