#include <signal.h>
#include <sys/prctl.h>
#include <sys/wait.h>

#include <memory>
#include <thread>

#include "CLI/CLI.hpp"
#include "base/status.h"
#include "bench/serving/grpc_backend.h"
#include "bench/serving/sweep.h"
#include "bench/serving/sweep_workload.h"
#include "router/policy/policies.h"
#include "server/assembly/simulated_worker.h"
#include "server/commands/bench_flags.h"
#include "server/commands/child_process.h"
#include "server/commands/client.h"
#include "server/commands/commands.h"
#include "server/commands/version.h"

namespace tandem {
namespace {

// Loading weights and measuring steps at start can take long.
constexpr std::chrono::minutes kStart(10);
constexpr std::chrono::seconds kPollTimeout(10);
constexpr std::chrono::seconds kEnd(30);

struct SweepFlags {
  std::string model_dir;  // empty: models/sample, and none on a simulated device
  std::string device = "cpu";
  std::vector<std::string> up_flags;
  int workers = 4;
  std::vector<std::string> strategies;
  std::vector<std::string> goodput;
  loadgen::SweepPlan plan;  // those fields whose flags need no conversion
  std::string out = "sweep";
  bool dry_run = false;
};

// Policies that need no parameters of their own and choose freely between the routes.
std::vector<std::string> UsualPolicies() {
  std::vector<std::string> usual;
  for (const std::string& policy : RoutingPolicyNames()) {
    if (policy != "classic" && policy != "unified" && policy != "disaggregated") {
      usual.push_back(policy);
    }
  }
  return usual;
}

absl::StatusOr<loadgen::SweepPlan> MakePlan(const SweepFlags& flags) {
  loadgen::SweepPlan plan = flags.plan;
  for (const std::string& text : flags.strategies) {
    ASSIGN_OR_RETURN(plan.strategies.emplace_back(),
                     loadgen::ParseStrategy(text, RoutingPolicyNames()));
  }
  if (plan.strategies.empty()) {
    plan.strategies = loadgen::UsualStrategies(flags.workers, UsualPolicies());
  }
  if (plan.workloads.empty()) {
    for (const loadgen::SweepWorkload& workload : loadgen::SweepWorkloads()) {
      plan.workloads.emplace_back(workload.name);
    }
  }
  ASSIGN_OR_RETURN(plan.objectives, loadgen::ParseObjectives(flags.goodput));
  plan.arguments = {"--device=" + flags.device};
  if (!flags.model_dir.empty()) {
    plan.arguments.push_back("--model=" + flags.model_dir);
  } else if (!SimulatedFile(flags.device)) {
    plan.arguments.emplace_back("--model=models/sample");
  }
  plan.arguments.insert(plan.arguments.end(), flags.up_flags.begin(), flags.up_flags.end());
  plan.build = kVersion;
  RETURN_IF_ERROR(Validate(plan));
  return plan;
}

// A service of its own for one point, so that no point finds the caches or the knowledge of another.
class Service {
 public:
  static absl::StatusOr<std::unique_ptr<Service>> Start(const loadgen::SweepPlan& plan,
                                                        const loadgen::SweepStrategy& strategy) {
    std::vector<std::string> arguments = {"up",
                                          "--port=0",
                                          "--drain-seconds=1",
                                          "--policy=" + strategy.policy,
                                          fmt::format("--prefill={}", strategy.prefill),
                                          fmt::format("--decode={}", strategy.decode),
                                          fmt::format("--unified={}", strategy.unified)};
    arguments.insert(arguments.end(), plan.arguments.begin(), plan.arguments.end());
    ASSIGN_OR_RETURN(ChildProcess up, ChildProcess::Start(arguments));
    std::unique_ptr<Service> service(new Service(std::move(up)));
    service->address_ = service->up_.TakeReadyLine();
    if (service->address_.empty()) {
      return FailedPrecondition("the service for {} could not start: {}", strategy.name,
                                service->up_.failure());
    }
    RETURN_IF_ERROR(service->AwaitWorkers(strategy.workers()));
    return service;
  }

  ~Service() {
    up_.Signal(SIGTERM);
    waitpid(up_.pid(), nullptr, 0);
    ReapAllChildren(kEnd);
  }

  const std::string& address() const { return address_; }

 private:
  explicit Service(ChildProcess up) : up_(std::move(up)) {}

  // A worker that still starts would get less than its share of the first requests.
  absl::Status AwaitWorkers(int count) const {
    Client client(address_);
    const auto deadline = std::chrono::steady_clock::now() + kStart;
    while (std::chrono::steady_clock::now() < deadline) {
      ASSIGN_OR_RETURN(const v1::GetStatusResponse status, client.GetStatus(kPollTimeout));
      int ready = 0;
      for (const v1::WorkerStatus& worker : status.workers()) {
        const v1::WorkerLoad& load = worker.load();
        if (worker.alive() && load.not_ready().empty() && !load.starting()) ++ready;
      }
      if (ready == count) return absl::OkStatus();
      std::this_thread::sleep_for(std::chrono::milliseconds(20));
    }
    return Unavailable("not all of the {} workers were ready within {} minutes", count,
                       kStart.count());
  }

  ChildProcess up_;
  std::string address_;
};

absl::Status Sweep(const SweepFlags& flags) {
  ASSIGN_OR_RETURN(const loadgen::SweepPlan plan, MakePlan(flags));
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  return RunSweep(
      plan, flags.out, flags.dry_run ? loadgen::SweepMode::kDryRun : loadgen::SweepMode::kRun,
      [&plan](const loadgen::SweepPoint& point,
              const loadgen::Schedule& schedule) -> absl::StatusOr<nlohmann::ordered_json> {
        ASSIGN_OR_RETURN(const std::unique_ptr<Service> service,
                         Service::Start(plan, point.strategy));
        const std::unique_ptr<loadgen::Backend> backend =
            loadgen::NewGrpcBackend({.server = service->address(), .request = {}});
        return MeasurePoint(plan, point, schedule, *backend);
      });
}

std::string WorkloadHelp() {
  std::string help = "kinds of load; default: all of";
  for (const loadgen::SweepWorkload& workload : loadgen::SweepWorkloads()) {
    help += fmt::format("\n{} ({})", workload.name, workload.what);
  }
  return help;
}

void AddPlanFlags(CLI::App& sweep, SweepFlags& flags) {
  loadgen::SweepPlan& plan = flags.plan;
  const std::string group = "Plan";
  sweep
      .add_option("--strategy", flags.strategies,
                  "NAME:POLICY:prefill=P,decode=D,unified=U; repeat it. All must have as many "
                  "workers. Default: what --workers allows")
      ->group(group);
  sweep
      .add_option("--workers", flags.workers,
                  "of each strategy: all unified, each division into prefill and decode, and each "
                  "policy with one prefill and one decode worker, the rest unified")
      ->check(CLI::Range(2, 16))
      ->capture_default_str()
      ->group(group);
  sweep.add_option("--workloads", plan.workloads, WorkloadHelp())->delimiter(',')->group(group);
  sweep.add_option("--rates", plan.rates, "requests/s, as 1,2,4")
      ->delimiter(',')
      ->required()
      ->group(group);
  plan.seeds = {1, 2, 3};
  sweep.add_option("--seeds", plan.seeds, "each gives a schedule of its own")
      ->delimiter(',')
      ->capture_default_str()
      ->group(group);
  sweep
      .add_option("--num-prompts", plan.requests,
                  "requests of each point; below 1000, no claim "
                  "should rest on it")
      ->capture_default_str()
      ->group(group);
  sweep
      .add_option("--context", plan.context_tokens,
                  "lengths of prompts and outputs are shares of it; the model's context must hold "
                  "it")
      ->capture_default_str()
      ->group(group);
  sweep
      .add_option(
          "--goodput", flags.goodput,
          "objectives of good requests, from the scheduled arrival: ttft:MS tpot:MS e2el:MS")
      ->required()
      ->group(group);
}

}  // namespace

void AddSweepCommand(CLI::App& bench, Action& chosen) {
  auto flags = std::make_shared<SweepFlags>();
  CLI::App* sweep = bench.add_subcommand(
      "sweep", "Compare strategies under equal loads, with a service of its own for each");
  sweep->add_option(
      "--model", flags->model_dir,
      "the model to serve; default: models/sample, and none with --device simulated:FILE");
  sweep->add_option("--device", flags->device, "where the workers compute, as of tandem up")
      ->capture_default_str();
  sweep->add_option("--up-flag", flags->up_flags,
                    "one more flag of tandem up, as --up-flag=--threads=1; may be repeated");
  AddPlanFlags(*sweep, *flags);
  sweep->add_option("--out", flags->out, "folder of the results; points that it has are not rerun")
      ->capture_default_str();
  sweep->add_flag("--dry-run", flags->dry_run, "print points and schedules alone");
  sweep->footer(
      "Example:\n"
      "  tandem bench sweep --rates 2,4,8 --goodput ttft:500 tpot:50 --up-flag=--threads=1");
  sweep->callback([flags, &chosen] {
    chosen = [flags] {
      const absl::Status status = Sweep(*flags);
      return status.ok() ? kExitOk : PrintError(status);
    };
  });
}

}  // namespace tandem
