#pragma once

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "bench/serving/serve_options.h"
#include "bench/simulator/fleet.h"
#include "bench/simulator/simulation.h"

namespace tandem::simulator {

enum class TokenReports : uint8_t { kAuto, kEach, kGrouped };

// What `tandem simulate` was asked for.
struct SimulateOptions {
  loadgen::ServeBenchOptions load;  // what is sent, and where results go
  std::string fleet;
  ModelOverrides overrides;
  std::vector<std::string> disturbances;
  TokenReports tokens = TokenReports::kAuto;  // automatic: each token, in runs with few of them
  SimulationOptions simulation;               // without the fields that follow from the above
  bool find_capacity = false;
  double attainment = 0.9;  // share of good requests that is enough for find_capacity
  bool json = false;        // on stdout, in the place of the text
};

// Runs the simulation, or the search for the smallest fleet, and prints the report. Errors before
// anything runs name the flag: those of fleet, disturbances, policy and schedule. UNAVAILABLE when
// not one request was complete.
absl::Status RunSimulate(const SimulateOptions& options);

}  // namespace tandem::simulator
