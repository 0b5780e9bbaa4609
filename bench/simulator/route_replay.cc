#include "bench/simulator/route_replay.h"

#include <cmath>
#include <numeric>
#include <utility>

#include "base/status.h"
#include "router/policy/objective.h"

namespace tandem::simulator {
namespace {

absl::StatusOr<std::vector<double>> Latencies(const SimulationOptions& options,
                                              const loadgen::Schedule& schedule) {
  loadgen::RunCounts counts;
  ASSIGN_OR_RETURN(const SimulationResult result, Simulate(options, schedule, counts));
  std::vector<double> latencies_ms;
  for (const loadgen::RequestRecord& record : result.run.records) {
    if (Judge(record, /*ignore_eos=*/true) != loadgen::Verdict::kComplete) {
      return FailedPrecondition("request {} did not complete in the replay: {}", record.id,
                                WhyNotComplete(record, /*ignore_eos=*/true));
    }
    latencies_ms.push_back(WeightedLatencyMs(record));
  }
  return latencies_ms;
}

double Sum(const std::vector<double>& values) {
  return std::accumulate(values.begin(), values.end(), 0.0);
}

template <typename T>
void Erase(std::vector<T>& values, size_t index) {
  values.erase(values.begin() + static_cast<std::ptrdiff_t>(index));
}

}  // namespace

double WeightedLatencyMs(const loadgen::RequestRecord& record) {
  const loadgen::RequestLatency latency = LatencyOf(record);
  return LatencyMs(ModelTime(latency.ttft.value_or(latency.e2e)), ModelTime(latency.e2e));
}

absl::StatusOr<RouteReplay> RouteReplay::New(SimulationOptions options,
                                             const loadgen::Schedule& schedule,
                                             std::vector<v1::Route> routes) {
  // With one worker of each role and a route for each request no policy has anything to choose.
  options.policy = "least-loaded";
  options.explain = false;
  options.routes = std::move(routes);
  RouteReplay replay(std::move(options), schedule);
  ASSIGN_OR_RETURN(replay.latencies_ms_, Latencies(replay.options_, schedule));
  return replay;
}

absl::StatusOr<RouteCosts> RouteReplay::CostsOf(size_t index) const {
  SimulationOptions options = options_;
  const bool is_unified = options.routes[index] == v1::ROUTE_UNIFIED;
  options.routes[index] = is_unified ? v1::ROUTE_DISAGGREGATED : v1::ROUTE_UNIFIED;
  const absl::StatusOr<std::vector<double>> flipped = Latencies(options, *schedule_);
  // On that route the fleet cannot serve all requests.
  const bool is_possible = !absl::IsFailedPrecondition(flipped.status());
  if (is_possible) RETURN_IF_ERROR(flipped.status());
  loadgen::Schedule others = *schedule_;
  Erase(others.requests, index);
  Erase(options.routes, index);
  ASSIGN_OR_RETURN(const std::vector<double> without, Latencies(options, others));
  const double alone = Sum(without);
  const auto cost_of = [&](const std::vector<double>& latencies_ms) {
    return ReplayedCost{.own_ms = latencies_ms[index],
                        .others_ms = Sum(latencies_ms) - latencies_ms[index] - alone};
  };
  const ReplayedCost taken = cost_of(latencies_ms_);
  const ReplayedCost other = is_possible ? cost_of(*flipped) : ReplayedCost{.own_ms = INFINITY};
  return is_unified ? RouteCosts{taken, other} : RouteCosts{other, taken};
}

}  // namespace tandem::simulator
