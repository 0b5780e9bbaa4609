#include "server/commands/sweep_flags.h"

#include "CLI/CLI.hpp"
#include "base/status.h"
#include "bench/serving/sweep_workload.h"
#include "router/policy/policies.h"
#include "server/commands/number_flag.h"
#include "server/commands/version.h"

namespace tandem {
namespace {

constexpr double kFastestSweepLink = 1e6;  // GB/s

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

std::string WorkloadHelp() {
  std::string help = "kinds of load; default: all of";
  for (const loadgen::SweepWorkload& workload : loadgen::SweepWorkloads()) {
    help += fmt::format("\n{} ({})", workload.name, workload.what);
  }
  return help;
}

}  // namespace

void AddSweepPlanFlags(CLI::App& command, SweepPlanFlags& flags) {
  loadgen::SweepPlan& plan = flags.plan;
  const auto add = [&](const char* name, auto& value, const std::string& help) {
    return command.add_option(name, value, help)->group("Plan");
  };
  add("--strategy", flags.strategies,
      "NAME:POLICY:prefill=P,decode=D,unified=U; repeat it. All must have as many workers. "
      "Default: "
      "what --workers allows");
  add("--workers", flags.workers,
      "of each strategy: all unified, each division into prefill and decode, and each policy with "
      "one prefill and one decode worker, the rest unified")
      ->check(CLI::Range(2, 16))
      ->capture_default_str();
  add("--workloads", plan.workloads, WorkloadHelp())->delimiter(',');
  add("--rates", plan.rates, "requests/s of every workload, as 1,2,4")->delimiter(',');
  add("--rates-of", flags.rates_of,
      "WORKLOAD=RATE,RATE,...: requests/s of one workload in place of --rates; repeat it")
      ->allow_extra_args(false);
  plan.seeds = {1, 2, 3};
  add("--seeds", plan.seeds, "each gives a schedule of its own")
      ->delimiter(',')
      ->capture_default_str();
  add("--num-prompts", plan.requests,
      "requests of each point; below 1000, no claim should rest on it")
      ->capture_default_str();
  add("--min-seconds", plan.min_seconds,
      "each point has more requests than that where its rate needs them to last so long: under "
      "overload a short run ends before its queues have formed")
      ->capture_default_str();
  add("--context", plan.context_tokens,
      "lengths of prompts and outputs are shares of it; the model's context must hold it")
      ->capture_default_str();
}

absl::StatusOr<loadgen::SweepPlan> MakeSweepPlan(const SweepPlanFlags& flags) {
  loadgen::SweepPlan plan = flags.plan;
  for (const std::string& text : flags.strategies) {
    ASSIGN_OR_RETURN(plan.strategies.emplace_back(),
                     loadgen::ParseStrategy(text, RoutingPolicyNames()));
  }
  if (plan.strategies.empty()) {
    plan.strategies = loadgen::UsualStrategies(flags.workers, UsualPolicies());
  }
  for (const std::string& text : flags.rates_of) RETURN_IF_ERROR(ParseRatesOf(text, plan));
  if (plan.workloads.empty()) {
    for (const loadgen::SweepWorkload& workload : loadgen::SweepWorkloads()) {
      plan.workloads.emplace_back(workload.name);
    }
  }
  plan.build = kVersion;
  return plan;
}

CLI::Option* AddSimulatedMachineFlags(CLI::App& command, SimulatedMachineFlags& flags) {
  const std::string group = "Simulation";
  command
      .add_option("--kv-tokens", flags.machines.overrides.kv_tokens,
                  "on the virtual clock: tokens in the KV pool of each worker; default: what the "
                  "file says")
      ->check(Positive())
      ->group(group);
  return command
      .add_option("--simulate", flags.machines.file,
                  "the parameter file of all workers, which run on a virtual clock as with tandem "
                  "simulate; no service is started")
      ->group(group);
}

void AddSimulatedLinkFlag(CLI::App& command, SimulatedMachineFlags& flags) {
  command
      .add_option("--link-gb-per-s", flags.link_gb_per_s,
                  "on the virtual clock: rate between prefill and decode workers; default: the "
                  "first link of the file")
      ->group("Simulation");
}

absl::StatusOr<simulator::SimulatedMachines> MakeSimulatedMachines(
    const SimulatedMachineFlags& flags) {
  simulator::SimulatedMachines machines = flags.machines;
  if (!(flags.link_gb_per_s >= 0 && flags.link_gb_per_s <= kFastestSweepLink)) {
    return InvalidArgument("--link-gb-per-s={}: give a number above 0", flags.link_gb_per_s);
  }
  if (flags.link_gb_per_s > 0) {
    machines.overrides.link = LinkModel{.bytes_per_second = flags.link_gb_per_s * 1e9};
  }
  return machines;
}

std::vector<std::string> ArgumentsOf(const SimulatedMachineFlags& flags) {
  const simulator::ModelOverrides& overrides = flags.machines.overrides;
  std::vector<std::string> arguments = {"--simulate=" + flags.machines.file};
  if (!overrides.model_dir.empty()) arguments.push_back("--model=" + overrides.model_dir);
  if (overrides.kv_tokens > 0) {
    arguments.push_back(fmt::format("--kv-tokens={}", overrides.kv_tokens));
  }
  if (flags.link_gb_per_s > 0) {
    arguments.push_back(fmt::format("--link-gb-per-s={:g}", flags.link_gb_per_s));
  }
  return arguments;
}

}  // namespace tandem
