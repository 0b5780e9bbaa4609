#pragma once

#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/serving/goodput.h"
#include "bench/serving/sweep.h"
#include "bench/simulator/fleet.h"
#include "bench/simulator/simulation.h"
#include "nlohmann/json_fwd.hpp"

namespace tandem::simulator {

// Which machines take the place of those of `tandem up`: all workers are of one kind.
struct SimulatedMachines {
  std::string file;  // their parameter file
  ModelOverrides overrides;
};

// The objectives that a router gets: those of TTFT and TPOT.
Slo SloOf(const loadgen::Objectives& objectives);

// The workers of a strategy. Errors are those of MakeFleet.
absl::StatusOr<std::vector<WorkerConfig>> FleetOf(const loadgen::SweepStrategy& strategy,
                                                  const SimulatedMachines& machines);

// A run of one strategy with everything that a live run of it would have by default.
absl::StatusOr<SimulationOptions> OptionsOf(const loadgen::SweepStrategy& strategy,
                                            const SimulatedMachines& machines,
                                            const loadgen::Objectives& objectives, uint64_t seed);

// A point of a sweep on the virtual clock; the result has the keys of loadgen::MeasurePoint and
// those that AddFleet adds. INVALID_ARGUMENT when a request does not fit into the model's context.
absl::StatusOr<nlohmann::ordered_json> SimulatePoint(const SimulatedMachines& machines,
                                                     const loadgen::SweepPlan& plan,
                                                     const loadgen::SweepPoint& point,
                                                     const loadgen::Schedule& schedule);

}  // namespace tandem::simulator
