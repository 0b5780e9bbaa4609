#include "server/commands/check_request.h"

#include <algorithm>
#include <set>
#include <utility>

#include "CLI/CLI.hpp"
#include "base/host_port.h"
#include "base/status.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "server/assembly/addresses.h"
#include "server/commands/router_process_flags.h"
#include "server/commands/up_plan.h"
#include "server/commands/version.h"
#include "server/commands/worker_flags.h"
#include "server/config/nearest_name.h"

namespace tandem {
namespace {

constexpr char kRouterPart[] = "router";
const std::set<std::string> kRoles = {"prefill", "decode", "unified"};

// Parses `given` as the process itself would, from its command line.
template <typename Flags, typename Add>
absl::StatusOr<Flags> ParseProcessFlags(const FlagValues& given, const Add& add) {
  Flags flags;
  CLI::App app;
  add(app, flags);
  std::vector<std::string> arguments = ArgumentsOf(given);
  std::ranges::reverse(arguments);  // CLI11 takes arguments in reverse order
  try {
    app.parse(std::move(arguments));
  } catch (const CLI::ParseError& error) {
    return InvalidArgument("{}", error.what());
  }
  return flags;
}

void AddRouter(const CheckFlags& flags, const UpPlan& plan, CheckRequest& request,
               Findings& findings) {
  const auto router = ParseProcessFlags<RouterProcessFlags>(plan.router, AddRouterProcessFlags);
  if (!findings.Check(kRouterPart, router.status())) return;
  request.router = router->Complete();
  request.router->port = flags.up.port;
  if (!flags.up.no_http) request.router->http_port = flags.up.http_port;
}

void AddWorker(const std::string& part, const FlagValues& given, CheckRequest& request,
               Findings& findings) {
  auto worker = ParseProcessFlags<WorkerFlags>(given, AddWorkerFlags);
  if (!findings.Check(part, worker.status())) return;
  worker->options.role = RoleNamed(worker->role);
  worker->options.build = kVersion;
  if (worker->options.name.empty()) worker->options.name = part;
  request.workers.push_back(std::move(worker->options));
}

// A worker that the file names and `tandem up` would not start: it belongs to another machine, or
// its name is misspelt. Only its flags can be looked at here.
void CheckNamedElsewhere(const ConfigFile& file, const std::string& name, Findings& findings) {
  FlagValues given = {{"name", {name}}};
  for (const ConfigEntry& entry : file.ForWorker("", name)) given[entry.key] = entry.values;
  const bool has_router = given.contains("router");
  // The worker's command line may give the flags that the file lacks, so placeholders stand for
  // them.
  given.try_emplace("role", std::vector<std::string>{"unified"});
  given.try_emplace("router", std::vector<std::string>{kDefaultServer});
  given.try_emplace("advertise", std::vector<std::string>{"localhost"});
  const auto worker = ParseProcessFlags<WorkerFlags>(given, AddWorkerFlags);
  if (!findings.Check(name, worker.status())) return;
  findings.Check(name, worker->options.tls.Check());
  findings.Check(name, CheckAddresses(worker->options));
  const std::string routers = has_router
                                  ? fmt::format("{}", fmt::join(worker->options.routers, ", "))
                                  : "the router that its command line names";
  findings.Add(
      Severity::kNote, name,
      fmt::format("[worker.name.{0}] is for a worker that `tandem up` would not start here; it "
                  "registers with {1}; --part {0} looks at it where it runs",
                  name, routers));
}

void AddPlan(const CheckFlags& flags, CheckRequest& request, Findings& findings) {
  const absl::StatusOr<UpPlan> plan = PlanUp(flags.up);
  if (!findings.Check("", plan.status())) return;
  findings.Check("", CheckRoutes(*plan));
  AddRouter(flags, *plan, request, findings);
  const std::string address = HostPortText(WorkersHost(flags.up.host), flags.up.port);
  for (const PlannedWorker& planned : plan->workers) {
    FlagValues given = planned.flags;
    given["router"] = {address};
    AddWorker(planned.name, given, request, findings);
  }
  if (!flags.up.config->file) return;
  for (const std::string& name : flags.up.config->file->NamedWorkers()) {
    if (std::ranges::find(plan->workers, name, &PlannedWorker::name) == plan->workers.end()) {
      CheckNamedElsewhere(*flags.up.config->file, name, findings);
    }
  }
}

// Whether `part` names a process that can be checked: the router, a role, or a worker of the file.
absl::Status CheckPartName(const CheckFlags& flags, const std::string& part) {
  if (part == kRouterPart) return absl::OkStatus();
  if (!flags.up.config->file) {
    return InvalidArgument("--part {}: give the file that says what it is, by --config", part);
  }
  std::set<std::string> known = kRoles;
  for (std::string& name : flags.up.config->file->NamedWorkers()) known.insert(std::move(name));
  if (known.contains(part)) return absl::OkStatus();
  known.insert(kRouterPart);
  return InvalidArgument("--part {}: there is no such part{}", part,
                         DidYouMean(part, known,
                                    ": give router, a role, or the NAME of a section "
                                    "[worker.name.NAME]"));
}

// Adds a process as it would run alone, with its own sections of the file and the flags that were
// given to `tandem check`.
void AddPart(const CheckFlags& flags, const std::string& part, CheckRequest& request,
             Findings& findings) {
  if (!findings.Check("", CheckPartName(flags, part))) return;
  if (part == kRouterPart) {
    const absl::StatusOr<UpPlan> plan = PlanUp(flags.up);
    if (findings.Check(part, plan.status())) AddRouter(flags, *plan, request, findings);
    return;
  }
  const bool is_role = kRoles.contains(part);
  FlagValues given = {{is_role ? "role" : "name", {part}}};
  const ConfigFile& file = *flags.up.config->file;
  for (const ConfigEntry& entry : file.ForWorker(is_role ? part : "", is_role ? "" : part)) {
    given.try_emplace(entry.key, entry.values);
  }
  Replace(ExplicitWorkerFlags(flags.up), given);
  AddWorker(part, given, request, findings);
}

}  // namespace

CheckRequest CheckRequestFor(const CheckFlags& flags, Findings& findings) {
  CheckRequest request = {.ports = flags.skip_ports ? PortUse::kNotAsked : PortUse::kMustBeFree,
                          .workload = flags.workload};
  request.workload.ttft_slo_ms = flags.up.router.ttft_slo_ms;
  request.workload.tpot_slo_ms = flags.up.router.tpot_slo_ms;
  if (flags.parts.empty()) AddPlan(flags, request, findings);
  for (const std::string& part : flags.parts) AddPart(flags, part, request, findings);
  return request;
}

}  // namespace tandem
