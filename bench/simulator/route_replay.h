#pragma once

#include <cstddef>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/serving/schedule.h"
#include "bench/simulator/simulation.h"

namespace tandem::simulator {

// What a request costs on each route: its own time to the end, and the time by which all others end
// later than without it. Milliseconds.
struct RouteCosts {
  double unified_ms = 0;
  double disaggregated_ms = 0;
};

// Runs a schedule again and again with every request on the route that it took the first time, except
// for one. All else being equal, this is what an oracle would know of this one decision. The fleet has
// one worker of each role, so that a route says on which workers a request runs.
class RouteReplay {
 public:
  // `routes`: that the requests took, one element each, unified or disaggregated. FAILED_PRECONDITION
  // when not every request is complete in the replay. `schedule` has at least two requests and outlives
  // the object.
  static absl::StatusOr<RouteReplay> New(SimulationOptions options,
                                         const loadgen::Schedule& schedule,
                                         std::vector<v1::Route> routes);

  // Two runs: without the request, and with it on the other route, which costs infinity where not all
  // requests complete that way.
  absl::StatusOr<RouteCosts> CostsOf(size_t index) const;
  // From the send to the end, of each request, in the replay with the given routes.
  const std::vector<double>& e2e_ms() const { return e2e_ms_; }

 private:
  RouteReplay(SimulationOptions options, const loadgen::Schedule& schedule)
      : options_(std::move(options)), schedule_(&schedule) {}

  SimulationOptions options_;
  const loadgen::Schedule* schedule_;
  std::vector<double> e2e_ms_;
};

}  // namespace tandem::simulator
