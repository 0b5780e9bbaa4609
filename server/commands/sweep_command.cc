#include <sys/prctl.h>

#include <memory>

#include "CLI/CLI.hpp"
#include "base/log.h"
#include "base/status.h"
#include "bench/serving/grpc_backend.h"
#include "bench/serving/sweep.h"
#include "server/assembly/simulated_worker.h"
#include "server/commands/commands.h"
#include "server/commands/sweep_flags.h"
#include "server/commands/swept_service.h"

namespace tandem {
namespace {

struct SweepFlags {
  std::string device = "cpu";
  std::vector<std::string> up_flags;
  std::vector<std::string> goodput;
  SweepPlanFlags plan;
  SimulatedMachineFlags simulated;  // --model sets its model directory, also for a live sweep
  std::string out = "sweep";
  bool dry_run = false;

  bool is_simulated() const { return !simulated.machines.file.empty(); }
};

// The arguments of `tandem up` that do not depend on the strategy.
std::vector<std::string> UpArguments(const SweepFlags& flags) {
  const std::string& model_dir = flags.simulated.machines.overrides.model_dir;
  std::vector<std::string> arguments = {"--device=" + flags.device};
  if (!model_dir.empty()) {
    arguments.push_back("--model=" + model_dir);
  } else if (!SimulatedFile(flags.device)) {
    arguments.emplace_back("--model=models/sample");
  }
  arguments.insert(arguments.end(), flags.up_flags.begin(), flags.up_flags.end());
  return arguments;
}

// Refuses flags that have no effect in the chosen way to run points, simulated or live.
absl::Status CheckWay(const SweepFlags& flags) {
  if (flags.is_simulated()) {
    if (flags.device != "cpu") {
      return InvalidArgument("--device={}: --simulate starts no workers: leave one of them out",
                             flags.device);
    }
    if (flags.up_flags.empty()) return absl::OkStatus();
    return InvalidArgument("--up-flag={}: --simulate starts no tandem up: leave one of them out",
                           flags.up_flags.front());
  }
  if (flags.simulated.machines.overrides.kv_tokens > 0) {
    return InvalidArgument("--kv-tokens={} goes with --simulate; a tandem up gets it as {}",
                           flags.simulated.machines.overrides.kv_tokens, "--up-flag=--kv-tokens=N");
  }
  if (flags.simulated.link_gb_per_s == 0) return absl::OkStatus();
  return InvalidArgument("--link-gb-per-s={} goes with --simulate", flags.simulated.link_gb_per_s);
}

absl::StatusOr<loadgen::SweepPlan> MakePlan(const SweepFlags& flags) {
  RETURN_IF_ERROR(CheckWay(flags));
  ASSIGN_OR_RETURN(loadgen::SweepPlan plan, MakeSweepPlan(flags.plan));
  ASSIGN_OR_RETURN(plan.objectives, loadgen::ParseObjectives(flags.goodput));
  if (flags.is_simulated()) {
    plan.command = "tandem bench sweep";
    plan.arguments = ArgumentsOf(flags.simulated);
  } else {
    plan.arguments = UpArguments(flags);
  }
  RETURN_IF_ERROR(Validate(plan));
  return plan;
}

absl::StatusOr<loadgen::PointRunner> SimulatedRunner(const SweepFlags& flags,
                                                     const loadgen::SweepPlan& plan) {
  RETURN_IF_ERROR(SetUpLogging("error", "sweep"));
  ASSIGN_OR_RETURN(const simulator::SimulatedMachines machines,
                   MakeSimulatedMachines(flags.simulated));
  for (const loadgen::SweepStrategy& strategy : plan.strategies) {
    RETURN_IF_ERROR(simulator::FleetOf(strategy, machines).status());
  }
  return [&plan, machines](const loadgen::SweepPoint& point, const loadgen::Schedule& schedule) {
    return SimulatePoint(machines, plan, point, schedule);
  };
}

loadgen::PointRunner LiveRunner(const loadgen::SweepPlan& plan) {
  prctl(PR_SET_CHILD_SUBREAPER, 1);
  return [&plan](const loadgen::SweepPoint& point,
                 const loadgen::Schedule& schedule) -> absl::StatusOr<nlohmann::ordered_json> {
    ASSIGN_OR_RETURN(const std::unique_ptr<SweptService> service,
                     SweptService::Start(plan, point.strategy));
    const std::unique_ptr<loadgen::Backend> backend =
        loadgen::NewGrpcBackend({.server = service->address(), .objectives = plan.objectives});
    return MeasurePoint(plan, point, schedule, *backend);
  };
}

absl::Status Sweep(const SweepFlags& flags) {
  ASSIGN_OR_RETURN(const loadgen::SweepPlan plan, MakePlan(flags));
  loadgen::PointRunner runner;
  if (flags.is_simulated()) {
    ASSIGN_OR_RETURN(runner, SimulatedRunner(flags, plan));
  } else {
    runner = LiveRunner(plan);
  }
  const auto mode = flags.dry_run ? loadgen::SweepMode::kDryRun : loadgen::SweepMode::kRun;
  return RunSweep(plan, flags.out, mode, runner);
}

}  // namespace

void AddSweepCommand(CLI::App& bench, Action& chosen) {
  auto flags = std::make_shared<SweepFlags>();
  CLI::App* sweep = bench.add_subcommand(
      "sweep",
      "Compare strategies under equal loads, with a service of its own for each or on a virtual "
      "clock");
  sweep->add_option(
      "--model", flags->simulated.machines.overrides.model_dir,
      "the model to serve; default: models/sample, and none with --device simulated:FILE. With "
      "--simulate: the model that was measured, for a file of tandem profile");
  sweep->add_option("--device", flags->device, "where the workers compute, as of tandem up")
      ->capture_default_str();
  sweep->add_option("--up-flag", flags->up_flags,
                    "one more flag of tandem up, as --up-flag=--threads=1; may be repeated");
  AddSimulatedMachineFlags(*sweep, flags->simulated);
  AddSimulatedLinkFlag(*sweep, flags->simulated);
  AddSweepPlanFlags(*sweep, flags->plan);
  sweep
      ->add_option(
          "--goodput", flags->goodput,
          "objectives of good requests, from the scheduled arrival: ttft:MS tpot:MS e2el:MS. The "
          "router is told those of TTFT and TPOT")
      ->required();
  sweep->add_option("--out", flags->out, "folder of the results; points that it has are not rerun")
      ->capture_default_str();
  sweep->add_flag("--dry-run", flags->dry_run, "print points and schedules alone");
  sweep->footer(
      "Examples:\n"
      "  tandem bench sweep --rates 2,4,8 --goodput ttft:500 tpot:50 --up-flag=--threads=1\n"
      "  tandem bench sweep --simulate models/simulated/qwen3-8b-h200.json --rates 10,20,40 "
      "--goodput ttft:500 tpot:20");
  sweep->callback([flags, &chosen] {
    chosen = [flags] {
      const absl::Status status = Sweep(*flags);
      return status.ok() ? kExitOk : PrintError(status);
    };
  });
}

}  // namespace tandem
