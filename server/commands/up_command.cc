#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>
#include <utility>

#include "CLI/CLI.hpp"
#include "absl/strings/numbers.h"
#include "base/host_port.h"
#include "base/log.h"
#include "base/status.h"
#include "server/commands/commands.h"
#include "server/commands/supervisor.h"
#include "server/commands/up_flags.h"
#include "server/commands/up_plan.h"
#include "server/services/descriptor_limit.h"
#include "transfer/media/tcp/socket.h"

namespace tandem {
namespace {

// The command line of a child: `command` and then the flags.
std::vector<std::string> ChildArguments(const std::string& command, const FlagValues& flags) {
  std::vector<std::string> arguments = ArgumentsOf(flags);
  arguments.insert(arguments.begin(), command);
  return arguments;
}

// The port is chosen here and not by the router, which must be found where it was after a restart.
// UNAVAILABLE when the one that was asked for is taken.
absl::StatusOr<uint16_t> ChooseHttpPort(const UpFlags& flags) {
  auto listening = ListenEverywhere(flags.host, flags.http_port.value_or(kDefaultHttpPort));
  if (listening.ok()) return LocalPort(listening->front());
  if (flags.http_port) {
    return Unavailable("choose another --http-port: {}", std::string(listening.status().message()));
  }
  ASSIGN_OR_RETURN(listening, ListenEverywhere(flags.host, 0));
  const uint16_t port = LocalPort(listening->front());
  LogWarn("port {} is taken: HTTP is served on port {}; give --http-port or --no-http",
          kDefaultHttpPort, port);
  return port;
}

bool ServesHttps(const UpFlags& flags) {
  return flags.tls.enabled() || !flags.http.tls.cert.empty();
}

// The flags with which `tandem generate` and others reach these processes.
std::string ClientFlags(const UpFlags& flags) {
  if (!flags.tls.enabled()) return "";
  std::string text = " --tls-ca " + flags.tls.ca;
  if (flags.tls_clients == "require") text += " --tls-cert CERTIFICATE --tls-key KEY";
  return text;
}

absl::Status AddHttp(const UpFlags& flags, SupervisorOptions& options) {
  if (flags.no_http) return absl::OkStatus();
  ASSIGN_OR_RETURN(const uint16_t port, ChooseHttpPort(flags));
  options.router_arguments.push_back(fmt::format("--http-port={}", port));
  options.has_page = !flags.http.no_page;
  options.http_url =
      fmt::format("{}://{}", ServesHttps(flags) ? "https" : "http", HostPortText(flags.host, port));
  return absl::OkStatus();
}

// No process is killed before its own time to drain is over, which sections of a file may have set.
std::chrono::seconds LongestDrain(const UpFlags& flags, const UpPlan& plan) {
  int longest = flags.drain_seconds;
  const auto take = [&longest](const FlagValues& process) {
    int seconds = 0;
    // A value that is no number is skipped, because the process itself refuses it.
    if (absl::SimpleAtoi(process.at("drain-seconds").front(), &seconds)) {
      longest = std::max(longest, seconds);
    }
  };
  take(plan.router);
  for (const PlannedWorker& worker : plan.workers) take(worker.flags);
  return std::chrono::seconds(longest);
}

absl::StatusOr<SupervisorOptions> SupervisorFor(const UpFlags& flags) {
  absl::Status files = flags.tls.Check();
  files.Update(flags.tuning.transfer.tls.Check("--kv-tls"));
  RETURN_IF_ERROR(files);
  ASSIGN_OR_RETURN(const UpPlan plan, PlanUp(flags));
  RETURN_IF_ERROR(CheckRoutes(plan));
  SupervisorOptions options;
  options.model = plan.model;
  options.drain = LongestDrain(flags, plan);
  options.ready_fd = flags.ready_fd;
  options.client_flags = ClientFlags(flags);
  options.router_port = flags.port;
  options.router_arguments = ChildArguments("router", plan.router);
  RETURN_IF_ERROR(AddHttp(flags, options));
  for (const PlannedWorker& worker : plan.workers) {
    options.workers.push_back({worker.name, ChildArguments("worker", worker.flags)});
  }
  return options;
}

int RunUp(const UpFlags& flags) {
  absl::Status status = SetUpLogging(flags.log, "up");
  if (status.ok()) status = RaiseDescriptorLimit().status();
  if (!status.ok()) return FailStart(flags.ready_fd, status);
  const absl::StatusOr<SupervisorOptions> options = SupervisorFor(flags);
  if (!options.ok()) return FailStart(flags.ready_fd, options.status());
  status = RunSupervisor(*options);
  return status.ok() ? kExitOk : FailStart(flags.ready_fd, status);
}

}  // namespace

void AddUpCommand(CLI::App& app, const std::shared_ptr<ConfigUse>& config, Action& chosen) {
  auto flags = std::make_shared<UpFlags>();
  flags->config = config;
  CLI::App* up = app.add_subcommand(
      "up", "Serve a model on this machine: a router and workers, watched and restarted");
  const auto passed = AddUpFlags(*up, *flags);
  up->footer(
      "Prints one line that begins with \"ready:\" and names the address.\n"
      "Example:\n"
      "  tandem up --model models/sample --port 8080\n"
      "  tandem generate \"It was a fine morning\" --server 127.0.0.1:8080\n"
      "  tandem up --device simulated:models/simulated/qwen3-8b-h200.json --prefill 4 --decode 8");
  up->callback([flags, passed, &chosen] {
    flags->passed = passed();
    chosen = [flags] { return RunUp(*flags); };
  });
}

}  // namespace tandem
