#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/serving/runner.h"
#include "bench/simulator/clients.h"
#include "bench/simulator/fleet.h"
#include "bench/simulator/network.h"
#include "bench/simulator/worker.h"
#include "router/policy/route_query.h"
#include "tandem/v1/inference.pb.h"

namespace tandem::simulator {

struct SimulationOptions {
  std::vector<WorkerConfig> fleet;
  WorkerLimits limits;
  std::string policy = "least-loaded";
  std::string predictor = "adaptive";  // of output lengths
  Slo slo;                             // that the router takes all requests to have
  v1::Route route = v1::ROUTE_AUTO;    // that every request asks for
  std::vector<v1::Route> routes;       // the same, an element per request; empty: `route`
  int32_t max_in_flight = 1'000'000;
  Shedding shedding = Shedding::kOff;
  Duration heartbeat = std::chrono::milliseconds(500);
  Duration lease = std::chrono::milliseconds(2500);
  NetworkOptions network;
  std::vector<Disturbance> disturbances;
  loadgen::RunOptions run;
  uint64_t seed = 0;
  // Whether the result says why requests went where they went. A router remembers 4,096 of them.
  bool explain = false;
  // Arrivals that are kept of a run: where there are more tokens, several of a request become one.
  int64_t most_arrivals = 10'000'000;
};

// What became of one worker.
struct WorkerOutcome {
  std::string name;
  v1::WorkerRole role = v1::WORKER_ROLE_UNIFIED;
  WorkerUsage usage;
  EngineStats stats;
};

struct SimulationResult {
  loadgen::RunResult run;
  std::vector<WorkerOutcome> workers;
  v1::GetStatusResponse router;  // its counters at the end
  uint64_t digest = 0;           // of all events in their order
  uint64_t events = 0;
  // Whether `run` has the arrival of each token. If not, gaps between tokens are means.
  bool has_each_token = true;
  // With `explain`: as the router explains them, by the order of the schedule.
  std::vector<v1::RequestExplanation> explanations;
};

// Runs the real router, its policy and the schedulers of the fleet on a virtual clock. Equal inputs
// give equal results, event by event. `schedule` is not empty; `counts` can be read meanwhile.
// INVALID_ARGUMENT or NOT_FOUND before anything runs: an unknown policy, limits out of range,
// routes of another number of requests.
absl::StatusOr<SimulationResult> Simulate(const SimulationOptions& options,
                                          const loadgen::Schedule& schedule,
                                          loadgen::RunCounts& counts);

}  // namespace tandem::simulator
