#include <unistd.h>

#include <map>
#include <memory>
#include <thread>

#include "CLI/CLI.hpp"
#include "base/log.h"
#include "model/checkpoint/mapped_file.h"
#include "server/assembly/worker.h"
#include "server/commands/child_process.h"
#include "server/commands/commands.h"
#include "server/commands/flags.h"
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

struct WorkerFlags {
  WorkerOptions options;
  int drain_seconds = 30;
  LogSetup log;
  int ready_fd = -1;
};

int RunWorker(WorkerFlags flags, const std::string& role) {
  WorkerOptions& options = flags.options;
  if (options.name.empty()) options.name = fmt::format("{}-{}", role, getpid());
  options.build = kVersion;
  options.trace.environment = ReadTraceEnvironment();
  absl::Status files = options.tls.Check();
  files.Update(options.tuning.transfer.tls.Check("--kv-tls"));
  if (!files.ok()) return FailStart(flags.ready_fd, files);
  if (auto limit = RaiseDescriptorLimit(); !limit.ok()) {
    return FailStart(flags.ready_fd, limit.status());
  }
  ExplainReadFaults();
  BlockTerminationSignals();
  if (absl::Status status = SetUpLogging(flags.log, options.name); !status.ok()) {
    return FailStart(flags.ready_fd, status);
  }
  auto worker = Worker::Start(options);
  if (!worker.ok()) return FailStart(flags.ready_fd, worker.status());
  // A router may come at any time, so this has a thread of its own: the main one waits for SIGTERM.
  std::thread known([&worker, &flags] {
    if (!(*worker)->WaitUntilKnown()) return;
    TellReady(flags.ready_fd, (*worker)->address() + " " + (*worker)->data_address());
  });
  WaitForTermination();
  LogInfo("draining seconds={}", flags.drain_seconds);
  (*worker)->Drain(std::chrono::steady_clock::now() + std::chrono::seconds(flags.drain_seconds));
  known.join();
  LogInfo("ended");
  if (absl::Status status = (*worker)->failure(); !status.ok()) return PrintError(status);
  return kExitOk;
}

}  // namespace

void AddWorkerCommand(CLI::App& app, Action& chosen) {
  auto flags = std::make_shared<WorkerFlags>();
  auto role = std::make_shared<std::string>();
  WorkerOptions& options = flags->options;
  CLI::App* worker = app.add_subcommand("worker", "Compute for one or more routers");
  const std::map<std::string, Role> roles = {
      {"unified", Role::kUnified}, {"prefill", Role::kPrefill}, {"decode", Role::kDecode}};
  worker->add_option("--role", *role, "prefill, decode, or unified (both)")
      ->required()
      ->check(CLI::IsMember({"prefill", "decode", "unified"}));
  worker->add_option(
      "--model", options.model_dir,
      "directory with config.json and *.safetensors; with --device simulated:FILE none "
      "is needed");
  worker
      ->add_option("--router", options.routers,
                   "host:port of a router, or dns:name:port for a router at every address that DNS "
                   "has for the name; may be repeated")
      ->required();
  worker->add_option("--model-name", options.model_name, "as the router's; default: its folder");
  worker->add_option("--name", options.name, "unique in the cluster; default: role and pid");
  worker->add_option("--host", options.host, "address to listen on")->capture_default_str();
  worker->add_option("--advertise", options.advertised_host,
                     "host that others connect to; default: --host");
  worker->add_option("--port", options.port, "of the worker service; 0: a free one")
      ->capture_default_str();
  worker->add_option("--data-port", options.data_port, "where KV arrives; 0: a free one")
      ->capture_default_str();
  worker->add_option("--advertise-data", options.advertised_data,
                     "where others reach --data-port, where that is not --advertise (a proxy, a "
                     "mapped port), as tcp:host:port; nothing else is offered then");
  worker
      ->add_option("--drain-seconds", flags->drain_seconds,
                   "at SIGTERM, how long requests may still take")
      ->check(NotNegative())
      ->capture_default_str();
  AddMetricsFlag(*worker, options.metrics_port);
  AddLogFlags(*worker, flags->log);
  AddReadyFlag(*worker, flags->ready_fd);
  AddTuningFlags(*worker, options.tuning);
  AddTraceFlags(*worker, options.trace);
  AddTraceFileFlag(*worker, options.trace);
  AddServerLimitFlags(*worker, options.server);
  AddPortTlsFlags(*worker, options.tls);
  worker->footer(
      "Example:\n"
      "  tandem worker --role decode --model models/sample --router 10.0.0.1:8080 \\\n"
      "    --host 0.0.0.0 --advertise 10.0.0.2");
  worker->callback([flags, role, roles, &chosen] {
    flags->options.role = roles.at(*role);
    chosen = [flags, role] { return RunWorker(*flags, *role); };
  });
}

}  // namespace tandem
