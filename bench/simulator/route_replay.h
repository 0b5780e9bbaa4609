#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/serving/schedule.h"
#include "bench/simulator/simulation.h"

namespace tandem::simulator {

// What a request costs on one route, in milliseconds.
struct ReplayedCost {
  double own_ms = 0;     // WeightedLatencyMs of the request
  double others_ms = 0;  // by how much those of all others together are longer than without it

  double total_ms() const { return own_ms + others_ms; }
};

struct RouteCosts {
  ReplayedCost unified;
  ReplayedCost disaggregated;
};

// The latency of a complete request, as the policy that is judged counts it: the time before the
// first token weighs more than the rest.
double WeightedLatencyMs(const loadgen::RequestRecord& record);

// Runs a schedule again and again with every request on the route that it took the first time,
// except for one. All else being equal, this is what an oracle would know of this one decision. The
// fleet has one worker of each role, so that a route says on which workers a request runs.
class RouteReplay {
 public:
  // `routes`: that the requests took, one element each, unified or disaggregated.
  // FAILED_PRECONDITION when not every request is complete in the replay. `schedule` has at least
  // two requests and outlives the object.
  static absl::StatusOr<RouteReplay> New(SimulationOptions options,
                                         const loadgen::Schedule& schedule,
                                         std::vector<v1::Route> routes);

  // Two runs: without the request, and with it on the other route, which costs infinity where not
  // all requests complete that way.
  absl::StatusOr<RouteCosts> CostsOf(size_t index) const;
  // WeightedLatencyMs of each request, in the replay with the given routes.
  const std::vector<double>& latencies_ms() const { return latencies_ms_; }

 private:
  RouteReplay(SimulationOptions options, const loadgen::Schedule& schedule)
      : options_(std::move(options)), schedule_(&schedule) {}

  SimulationOptions options_;
  const loadgen::Schedule* schedule_;
  std::vector<double> latencies_ms_;
};

}  // namespace tandem::simulator
