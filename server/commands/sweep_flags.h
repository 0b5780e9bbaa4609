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

// --strategy, --workers, --workloads, --rates, --rates-of, --seeds, --num-prompts, --min-seconds,
// --context.
void AddSweepPlanFlags(CLI::App& command, SweepPlanFlags& flags);

// The plan without objectives, and without what serves. Errors name the flag; Validate says whether the
// plan as a whole can run.
absl::StatusOr<loadgen::SweepPlan> MakeSweepPlan(const SweepPlanFlags& flags);

// The machines of the virtual clock.
struct SimulatedMachineFlags {
  simulator::SimulatedMachines machines;
  double link_gb_per_s = 0;  // 0: the file's
};
// --simulate and --kv-tokens; returns the former.
CLI::Option* AddSimulatedMachineFlags(CLI::App& command, SimulatedMachineFlags& flags);
// --link-gb-per-s
void AddSimulatedLinkFlag(CLI::App& command, SimulatedMachineFlags& flags);
absl::StatusOr<simulator::SimulatedMachines> MakeSimulatedMachines(
    const SimulatedMachineFlags& flags);

// The same as arguments of a command, for the keys and the headings of results.
std::vector<std::string> ArgumentsOf(const SimulatedMachineFlags& flags);

}  // namespace tandem
