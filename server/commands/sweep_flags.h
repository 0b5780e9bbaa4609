#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/serving/sweep_plan.h"
#include "bench/simulator/simulated_point.h"

namespace CLI {
class App;
class Option;
}  // namespace CLI

namespace tandem {

// The flags that say what a sweep compares, as they were typed.
struct SweepPlanFlags {
  int workers = 4;
  std::vector<std::string> strategies;
  std::vector<std::string> rates_of;
  loadgen::SweepPlan plan;  // those fields whose flags need no conversion
};

// Adds --strategy, --workers, --workloads, --rates, --rates-of, --seeds, --num-prompts,
// --min-seconds and --context.
void AddSweepPlanFlags(CLI::App& command, SweepPlanFlags& flags);

// The plan that the flags describe, without its objectives and without the service that runs it.
// Errors name the flag; SweepPlan's Validate says whether the plan as a whole can run.
absl::StatusOr<loadgen::SweepPlan> MakeSweepPlan(const SweepPlanFlags& flags);

// The machines that a sweep simulates on the virtual clock.
struct SimulatedMachineFlags {
  simulator::SimulatedMachines machines;
  double link_gb_per_s = 0;  // 0: the bandwidth in the parameter file
};
// Adds --simulate and --kv-tokens; returns the option --simulate.
CLI::Option* AddSimulatedMachineFlags(CLI::App& command, SimulatedMachineFlags& flags);
// Adds --link-gb-per-s.
void AddSimulatedLinkFlag(CLI::App& command, SimulatedMachineFlags& flags);
absl::StatusOr<simulator::SimulatedMachines> MakeSimulatedMachines(
    const SimulatedMachineFlags& flags);

// The simulated machines as arguments of a command, for the keys and the headings of results.
std::vector<std::string> ArgumentsOf(const SimulatedMachineFlags& flags);

}  // namespace tandem
