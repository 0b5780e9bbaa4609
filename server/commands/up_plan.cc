#include "server/commands/up_plan.h"

#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/host_port.h"
#include "base/status.h"
#include "fmt/format.h"
#include "kernels/registry.h"
#include "server/assembly/model_name.h"
#include "server/assembly/simulated_worker.h"

namespace tandem {
namespace {

bool HasFile(const UpFlags& flags) { return flags.config != nullptr && flags.config->file; }

struct RoleCount {
  std::string role;
  int count = 0;
};

// The numbers of workers in the order in which workers are started and get consecutive metrics
// ports.
using Counts = std::vector<RoleCount>;

// Workers that share one GPU have nothing to gain from handing KV over: unless it is asked for, one
// unified worker has it alone.
Counts CountWorkers(const UpFlags& flags) {
  const bool on_cpu = IsCpuName(flags.tuning.device) || SimulatedFile(flags.tuning.device);
  return {{"prefill", flags.prefill.value_or(on_cpu ? 1 : 0)},
          {"decode", flags.decode.value_or(on_cpu ? 1 : 0)},
          {"unified", flags.unified}};
}

absl::StatusOr<std::string> ServedName(const UpFlags& flags) {
  if (const std::optional<std::string> file = SimulatedFile(flags.tuning.device)) {
    ASSIGN_OR_RETURN(const SimulatedDevice device, LoadSimulatedDevice(*file, flags.model_dir));
    return SimulatedModelName(device, flags.model_name);
  }
  if (flags.model_dir.empty()) {
    return InvalidArgument(
        "--model is missing: give a directory with config.json and *.safetensors");
  }
  return flags.model_name.empty() ? ModelNameFor(flags.model_dir) : flags.model_name;
}

// The flags that the router and all workers have by default.
FlagValues CommonFlags(const UpFlags& flags) {
  FlagValues common = {{"log-level", {flags.log.level}},
                       {"log-format", {flags.log.format}},
                       {"drain-seconds", {fmt::format("{}", flags.drain_seconds)}}};
  if (!flags.model_dir.empty()) common["model"] = {flags.model_dir};
  if (!flags.trace.file.empty()) common["trace-file"] = {flags.trace.file};
  return common;
}

// Gives the process a trace file of its own, because each process bounds the size of its file.
void SplitTraceFile(const std::string& name, FlagValues& process) {
  const auto file = process.find("trace-file");
  if (file != process.end()) file->second.back() += "." + name;
}

// The flags of `given` that beat the file's sections, because they were given on the command line
// or in [up]; all of them where there is no file.
FlagValues ExplicitAmong(const FlagValues& given, const UpFlags& flags) {
  if (!HasFile(flags)) return given;
  FlagValues some;
  for (const auto& [name, values] : given) {
    if (flags.config->explicit_flags.contains(name)) some[name] = values;
  }
  return some;
}

// Sets the flags that the file has for a process, and then those that were given to `tandem up`
// itself, which beat the file.
void TakeSections(const std::vector<ConfigEntry>& entries, const UpFlags& flags,
                  FlagValues& process) {
  for (const ConfigEntry& entry : entries) process[entry.key] = entry.values;
  Replace(ExplicitAmong(CommonFlags(flags), flags), process);
  Replace(ExplicitAmong(flags.passed.to_all, flags), process);
}

FlagValues RouterFlagsOf(const UpFlags& flags, const std::string& model) {
  FlagValues router = CommonFlags(flags);
  TakeSections(HasFile(flags) ? flags.config->file->ForRouterOfUp() : std::vector<ConfigEntry>(),
               flags, router);
  Replace(ExplicitAmong(flags.passed.to_router, flags), router);
  router["model-name"] = {model};
  router["host"] = {flags.host};
  SplitTraceFile("router", router);
  if (const std::optional<std::string> file = SimulatedFile(flags.tuning.device)) {
    router["simulated"] = {*file};
  }
  return router;
}

FlagValues WorkerFlagsOf(const UpFlags& flags, const std::string& role, const std::string& name) {
  FlagValues worker = CommonFlags(flags);
  worker["host"] = {WorkersHost(flags.host)};
  TakeSections(
      HasFile(flags) ? flags.config->file->ForWorkerOfUp(role, name) : std::vector<ConfigEntry>(),
      flags, worker);
  Replace(ExplicitAmong(flags.passed.to_workers, flags), worker);
  worker["role"] = {role};
  worker["name"] = {name};
  SplitTraceFile(name, worker);
  return worker;
}

void AddWorkers(const UpFlags& flags, const RoleCount& some, UpPlan& plan) {
  for (int i = 0; i < some.count; ++i) {
    const std::string name = fmt::format("{}-{}", some.role, i);
    FlagValues worker = WorkerFlagsOf(flags, some.role, name);
    worker["model-name"] = {plan.model};
    if (const auto first = flags.worker_metrics_port) {
      const size_t port = *first == 0 ? 0 : *first + plan.workers.size();
      worker["metrics-port"] = {fmt::format("{}", port)};
    }
    plan.workers.push_back({name, std::move(worker)});
  }
}

std::string DeviceOf(const FlagValues& worker) {
  const auto device = worker.find("device");
  return device == worker.end() ? "cpu" : device->second.front();
}

// Workers on one GPU get equal shares of its memory, unless flags say otherwise.
void ShareDevices(UpPlan& plan) {
  std::map<std::string, int> workers_on;
  for (const PlannedWorker& worker : plan.workers) ++workers_on[DeviceOf(worker.flags)];
  for (PlannedWorker& worker : plan.workers) {
    const std::string device = DeviceOf(worker.flags);
    if (IsCpuName(device) || SimulatedFile(device)) continue;
    const double share = kDefaultDeviceMemoryFraction / workers_on[device];
    worker.flags.try_emplace("device-memory-fraction",
                             std::vector<std::string>{fmt::format("{}", share)});
  }
}

}  // namespace

std::string WorkersHost(const std::string& host) {
  return KindOfHost(host) == HostKind::kUnspecified ? "127.0.0.1" : host;
}

FlagValues ExplicitWorkerFlags(const UpFlags& flags) {
  FlagValues given = ExplicitAmong(CommonFlags(flags), flags);
  Replace(ExplicitAmong(flags.passed.to_all, flags), given);
  Replace(ExplicitAmong(flags.passed.to_workers, flags), given);
  return given;
}

absl::StatusOr<UpPlan> PlanUp(const UpFlags& flags) {
  UpPlan plan;
  ASSIGN_OR_RETURN(plan.model, ServedName(flags));
  plan.router = RouterFlagsOf(flags, plan.model);
  for (const RoleCount& some : CountWorkers(flags)) AddWorkers(flags, some, plan);
  ShareDevices(plan);
  return plan;
}

absl::Status CheckRoutes(const UpPlan& plan) {
  std::set<std::string> roles;
  for (const PlannedWorker& worker : plan.workers) roles.insert(worker.flags.at("role").front());
  if (roles.contains("unified")) return absl::OkStatus();
  if (roles.contains("prefill") && roles.contains("decode")) return absl::OkStatus();
  return InvalidArgument(
      "no route: give a unified worker, or a prefill worker and a decode worker (--unified, "
      "--prefill, --decode)");
}

}  // namespace tandem
