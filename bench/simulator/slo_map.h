#pragma once

#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/serving/sweep_comparison.h"
#include "bench/simulator/simulated_point.h"

namespace tandem::simulator {

// Which objectives the strategies of a sweep are held against. Those of the sweep itself are not
// used.
struct SloMapPlan {
  SimulatedMachines machines;
  loadgen::SweepPlan sweep;
  std::vector<double> ttft_ms;  // ascending
  std::vector<double> tpot_ms;  // ascending
};

// INVALID_ARGUMENT names the flag and its value.
absl::Status Validate(const SloMapPlan& plan);

// Under one pair of objectives.
struct SloCell {
  double ttft_ms = 0;
  double tpot_ms = 0;
  std::vector<loadgen::Contender> contenders;  // as in the plan; `good` are shares
  std::string winner;
  std::vector<loadgen::Comparison> comparisons;  // of the strategies that adapt
};

// Under one load: a cell for each TTFT, and in it for each TPOT.
struct SloMap {
  std::string workload;
  double rate = 0;
  std::vector<SloCell> cells;
};

// Runs every load of the sweep. A strategy that adapts gets the objectives, so it runs once for
// each pair; the others run once, and their requests are judged by each pair. `progress` is called
// after each map.
absl::StatusOr<std::vector<SloMap>> MakeSloMaps(const SloMapPlan& plan,
                                                const std::function<void(const SloMap&)>& progress);

}  // namespace tandem::simulator
