#include <algorithm>
#include <chrono>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "CLI/CLI.hpp"
#include "base/host_port.h"
#include "base/log.h"
#include "base/status.h"
#include "fmt/format.h"
#include "server/assembly/addresses.h"
#include "server/check/check_deployment.h"
#include "server/check/check_report.h"
#include "server/commands/commands.h"
#include "server/commands/number_flag.h"
#include "server/commands/router_process_flags.h"
#include "server/commands/up_flags.h"
#include "server/commands/up_plan.h"
#include "server/commands/version.h"
#include "server/commands/worker_flags.h"

namespace tandem {
namespace {

struct CheckFlags {
  UpFlags up;
  Workload workload;
  bool skip_ports = false;
  bool json = false;
};

// Parses `given` as the process itself would, from its command line.
template <typename Flags, typename Add>
absl::StatusOr<Flags> ParseProcessFlags(const FlagValues& given, const Add& add) {
  Flags flags;
  CLI::App app;
  add(app, flags);
  std::vector<std::string> arguments = ArgumentsOf(given);
  std::ranges::reverse(arguments);  // as CLI11 wants them
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    return InvalidArgument("{}", error.what());
  }
  return flags;
}

// What `tandem up` would start, as far as flags can be parsed; others are errors of the report.
CheckRequest RequestFor(const CheckFlags& flags, const UpPlan& plan, Findings& findings) {
  CheckRequest request = {.ports = flags.skip_ports ? PortUse::kNotAsked : PortUse::kMustBeFree,
                          .workload = flags.workload};
  const auto router = ParseProcessFlags<RouterProcessFlags>(plan.router, AddRouterProcessFlags);
  if (findings.Check("router", router.status())) request.router = router->Complete();
  request.router.port = flags.up.port;
  if (!flags.up.no_http) request.router.http_port = flags.up.http_port;
  const std::string address = HostPortText(WorkersHost(flags.up.host), flags.up.port);
  for (const PlannedWorker& planned : plan.workers) {
    FlagValues given = planned.flags;
    given["router"] = {address};
    auto worker = ParseProcessFlags<WorkerFlags>(given, AddWorkerFlags);
    if (!findings.Check(planned.name, worker.status())) continue;
    worker->options.role = RoleNamed(worker->role);
    worker->options.build = kVersion;
    request.workers.push_back(std::move(worker->options));
  }
  return request;
}

// A worker that the file names and `tandem up` would not start: it belongs to another machine, or its
// name is misspelt. Only its flags can be looked at here.
void CheckNamedElsewhere(const ConfigFile& file, const std::string& name, Findings& findings) {
  FlagValues given = {{"name", {name}}};
  for (const ConfigEntry& entry : file.ForWorker("", name)) given[entry.key] = entry.values;
  const bool has_router = given.contains("router");
  // What is missing may be on its command line.
  given.try_emplace("role", std::vector<std::string>{"unified"});
  given.try_emplace("router", std::vector<std::string>{kDefaultServer});
  given.try_emplace("advertise", std::vector<std::string>{"localhost"});
  const auto worker = ParseProcessFlags<WorkerFlags>(given, AddWorkerFlags);
  if (!findings.Check(name, worker.status())) return;
  findings.Check(name, worker->options.tls.Check());
  findings.Check(name, CheckAddresses(worker->options));
  findings.Add(
      Severity::kNote, name,
      fmt::format("[worker.name.{}] is for a worker that `tandem up` would not start here; it "
                  "registers with {}",
                  name,
                  has_router ? fmt::format("{}", fmt::join(worker->options.routers, ", "))
                             : "the router that its command line names"));
}

void CheckNamedWorkers(const CheckFlags& flags, const UpPlan& plan, Findings& findings) {
  if (!flags.up.config->file) return;
  for (const std::string& name : flags.up.config->file->NamedWorkers()) {
    if (std::ranges::find(plan.workers, name, &PlannedWorker::name) == plan.workers.end()) {
      CheckNamedElsewhere(*flags.up.config->file, name, findings);
    }
  }
}

CheckReport ReportFor(const CheckFlags& flags) {
  Findings of_flags;
  const absl::StatusOr<UpPlan> plan = PlanUp(flags.up);
  if (!of_flags.Check("", plan.status())) {
    return {.findings = std::move(of_flags), .no_advice = "no model is known"};
  }
  of_flags.Check("", CheckRoutes(*plan));
  const CheckRequest request = RequestFor(flags, *plan, of_flags);
  CheckNamedWorkers(flags, *plan, of_flags);
  CheckReport report = CheckDeployment(request, std::chrono::system_clock::now());
  for (const Finding& one : of_flags.all()) {
    report.findings.Add(one.severity, one.part, one.text);
  }
  return report;
}

int RunCheck(const CheckFlags& flags) {
  // What the parts would log is in the report.
  if (absl::Status status = SetUpLogging("off", "check"); !status.ok()) return PrintError(status);
  const CheckReport report = ReportFor(flags);
  fmt::print("{}", flags.json ? CheckJson(report) : CheckText(report));
  return report.findings.has_errors() ? kExitFailed : kExitOk;
}

void AddWorkloadFlags(CLI::App& app, Workload& workload) {
  const std::string group = "Workload, for which a number of workers is advised";
  app.add_option("--input-len", workload.input_tokens, "tokens of a prompt")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str()
      ->group(group);
  app.add_option("--output-len", workload.output_tokens, "tokens of an output")
      ->check(CLI::Range(1, 1 << 24))
      ->capture_default_str()
      ->group(group);
  app.add_option("--request-rate", workload.requests_per_second, "requests per second")
      ->check(Positive())
      ->capture_default_str()
      ->group(group);
}

}  // namespace

void AddCheckCommand(CLI::App& app, const std::shared_ptr<ConfigUse>& config, Action& chosen) {
  auto flags = std::make_shared<CheckFlags>();
  flags->up.config = config;
  CLI::App* check = app.add_subcommand(
      "check", "Find what is wrong with a deployment, and say what it would take, without serving");
  check->add_flag("--json", flags->json, "print one JSON object");
  check->add_flag("--skip-ports", flags->skip_ports,
                  "do not ask whether ports are free, because the deployment runs already");
  AddWorkloadFlags(*check, flags->workload);
  const auto passed = AddUpFlags(*check, flags->up);
  check->footer(
      "Looks at what `tandem up` would start with the same flags and the same --config.\n"
      "Exit status: 0 all in order, maybe with warnings; 1 errors, all of which are printed.\n"
      "Example:\n"
      "  tandem check --config cluster.toml --input-len 2048 --request-rate 4");
  check->callback([flags, passed, &chosen] {
    flags->up.passed = passed();
    chosen = [flags] { return RunCheck(*flags); };
  });
}

}  // namespace tandem
