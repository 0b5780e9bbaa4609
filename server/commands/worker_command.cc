#include <unistd.h>

#include <memory>
#include <thread>

#include "CLI/CLI.hpp"
#include "base/log.h"
#include "model/checkpoint/mapped_file.h"
#include "server/assembly/worker.h"
#include "server/commands/child_process.h"
#include "server/commands/commands.h"
#include "server/commands/heap_trimmer.h"
#include "server/commands/signals.h"
#include "server/commands/trace_flags.h"
#include "server/commands/version.h"
#include "server/commands/worker_flags.h"
#include "server/services/descriptor_limit.h"

namespace tandem {
namespace {

int RunWorker(WorkerFlags flags) {
  WorkerOptions& options = flags.options;
  if (options.name.empty()) options.name = fmt::format("{}-{}", flags.role, getpid());
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
  HeapTrimmer heap;
  WaitForTermination(kTrimInterval, [&heap] { heap.TrimIfMuchIsFree(); });
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
  CLI::App* worker = app.add_subcommand("worker", "Compute for one or more routers");
  AddWorkerFlags(*worker, *flags);
  worker->footer(
      "Example:\n"
      "  tandem worker --role decode --model models/sample --router 10.0.0.1:8080 \\\n"
      "    --host 0.0.0.0 --advertise 10.0.0.2");
  worker->callback([flags, &chosen] {
    flags->options.role = RoleNamed(flags->role);
    chosen = [flags] { return RunWorker(*flags); };
  });
}

}  // namespace tandem
