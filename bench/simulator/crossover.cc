#include "bench/simulator/crossover.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/status.h"
#include "bench/serving/distribution.h"
#include "bench/serving/workload.h"
#include "bench/simulator/route_replay.h"

namespace tandem::simulator {
namespace {

// The first requests find an idle fleet and a router that has learned nothing: none of them is sampled.
constexpr int32_t kWarmUpShare = 5;
// KV of long prompts takes minutes over slow links; on the virtual clock waiting for it is free.
constexpr std::chrono::hours kLongestDrain(24);

absl::Status CheckPositive(const char* flag, double value, double highest) {
  if (value > 0 && value <= highest) return absl::OkStatus();
  return InvalidArgument("{}: {} is no number above 0 and up to {:g}", flag, value, highest);
}

template <typename T>
absl::Status CheckAscending(const char* flag, const std::vector<T>& values, double highest) {
  if (values.empty()) return InvalidArgument("{}: give at least one", flag);
  for (size_t i = 0; i < values.size(); ++i) {
    RETURN_IF_ERROR(CheckPositive(flag, static_cast<double>(values[i]), highest));
    if (i > 0 && values[i] <= values[i - 1]) {
      return InvalidArgument("{}: {} comes after {}: give ascending numbers", flag, values[i],
                             values[i - 1]);
    }
  }
  return absl::OkStatus();
}

absl::Status CheckCount(const char* flag, int32_t value, int32_t low, int32_t high) {
  if (value >= low && value <= high) return absl::OkStatus();
  return InvalidArgument("{}={}: give a number from {} to {}", flag, value, low, high);
}

// One of each role, so that a route says where a request runs.
const loadgen::SweepStrategy kOneOfEach = {
    .name = "", .policy = "", .prefill = 1, .decode = 1, .unified = 1};

absl::StatusOr<SimulationOptions> OptionsOf(const CrossoverPlan& plan, double link_gb_per_s) {
  SimulatedMachines machines = plan.machines;
  machines.overrides.link = LinkModel{.bytes_per_second = link_gb_per_s * 1e9};
  ASSIGN_OR_RETURN(SimulationOptions options, OptionsOf(kOneOfEach, machines, {}, plan.seed));
  options.policy = plan.policy;
  options.run.drain_timeout = kLongestDrain;
  options.explain = true;
  return options;
}

absl::StatusOr<loadgen::Schedule> ScheduleOf(const CrossoverPlan& plan, const CrossoverCell& cell,
                                             int32_t max_context) {
  loadgen::WorkloadOptions workload;
  workload.num_prompts = plan.requests;
  workload.input = {.low = cell.prompt, .high = cell.prompt};
  workload.output = {.low = plan.output_tokens, .high = plan.output_tokens};
  ASSIGN_OR_RETURN(loadgen::Schedule schedule,
                   MakeSchedule(workload, loadgen::ArrivalOptions{.rate = cell.rate}, plan.seed));
  RETURN_IF_ERROR(loadgen::CheckFits(schedule, max_context));
  return schedule;
}

double RateOf(const CrossoverCell& cell, const StepModel& steps) {
  const ModelTime prefill =
      steps.Step({.prefill_tokens = cell.prompt, .prefill_pairs = CausalPairs(0, cell.prompt)});
  return cell.load * 1e3 / prefill.count();
}

// The cost of the cheapest candidate of one route, in milliseconds; nothing where it has none.
std::optional<double> CostOn(const v1::RoutingDecision& decision, v1::Route route) {
  std::optional<double> least;
  for (const v1::PlacementCandidate& one : decision.candidates()) {
    if (one.route() != route || !one.cost_is_ms() || !one.has_predicted()) continue;
    least = std::min(least.value_or(INFINITY), one.cost());
  }
  return least;
}

void AddPredictions(const SimulationResult& result, CrossoverCell& cell) {
  std::vector<double> advantages;
  for (const v1::RequestExplanation& one : result.explanations) {
    if (one.decisions().empty()) continue;
    const std::optional<double> unified = CostOn(one.decisions(0), v1::ROUTE_UNIFIED);
    const std::optional<double> other = CostOn(one.decisions(0), v1::ROUTE_DISAGGREGATED);
    if (unified && other) advantages.push_back(*unified - *other);
  }
  if (advantages.empty()) return;
  const auto better = std::ranges::count_if(advantages, [](double ms) { return ms > 0; });
  cell.predicted = static_cast<double>(better) / static_cast<double>(advantages.size());
  cell.median_advantage_ms = loadgen::Distribution(std::move(advantages)).Median();
}

// The routes that the requests took; fewer than requests where some reached no worker.
std::vector<v1::Route> RoutesOf(const SimulationResult& result) {
  std::vector<v1::Route> routes;
  for (const loadgen::RequestRecord& record : result.run.records) {
    if (record.end.route.empty()) continue;
    routes.push_back(record.end.route == "unified" ? v1::ROUTE_UNIFIED : v1::ROUTE_DISAGGREGATED);
  }
  return routes;
}

double DifferenceOf(const RouteReplay& replay, const SimulationResult& result) {
  double difference = 0;
  double all = 0;
  for (size_t i = 0; i < replay.latencies_ms().size(); ++i) {
    const double latency = WeightedLatencyMs(result.run.records[i]);
    difference += std::abs(replay.latencies_ms()[i] - latency);
    all += latency;
  }
  return difference / all;
}

// Runs samples of the requests on both routes.
absl::Status AddReplays(const CrossoverPlan& plan, const RouteReplay& replay,
                        const std::vector<v1::Route>& routes, CrossoverCell& cell) {
  const int32_t first = plan.requests / kWarmUpShare;
  int32_t better_apart = 0;
  for (int32_t i = 0; i < plan.samples; ++i) {
    const auto index =
        static_cast<size_t>(first + int64_t{i} * (plan.requests - first) / plan.samples);
    ASSIGN_OR_RETURN(const RouteCosts costs, replay.CostsOf(index));
    const double least = std::min(costs.unified_ms, costs.disaggregated_ms);
    const double taken =
        routes[index] == v1::ROUTE_UNIFIED ? costs.unified_ms : costs.disaggregated_ms;
    cell.regret_ms += taken - least;
    cell.oracle_ms += least;
    if (costs.disaggregated_ms < costs.unified_ms) ++better_apart;
  }
  cell.samples = plan.samples;
  cell.replayed = static_cast<double>(better_apart) / plan.samples;
  return absl::OkStatus();
}

absl::Status RunCell(const CrossoverPlan& plan, CrossoverCell& cell) {
  ASSIGN_OR_RETURN(const SimulationOptions options, OptionsOf(plan, cell.link_gb_per_s));
  const WorkerModel& model = *options.fleet.front().model;
  cell.rate = RateOf(cell, model.steps);
  ASSIGN_OR_RETURN(const loadgen::Schedule schedule,
                   ScheduleOf(plan, cell, model.max_context_tokens));
  loadgen::RunCounts counts;
  ASSIGN_OR_RETURN(const SimulationResult result, Simulate(options, schedule, counts));
  AddPredictions(result, cell);
  const std::vector<v1::Route> routes = RoutesOf(result);
  const auto apart = std::ranges::count(routes, v1::ROUTE_DISAGGREGATED);
  cell.chosen = static_cast<double>(apart) / plan.requests;
  if (plan.samples == 0 || routes.size() < schedule.requests.size()) return absl::OkStatus();
  const absl::StatusOr<RouteReplay> replay = RouteReplay::New(options, schedule, routes);
  // More than the fleet can do: requests failed, and their times say nothing.
  if (absl::IsFailedPrecondition(replay.status())) return absl::OkStatus();
  RETURN_IF_ERROR(replay.status());
  cell.replay_difference = DifferenceOf(*replay, result);
  return AddReplays(plan, *replay, routes, cell);
}

}  // namespace

absl::Status Validate(const CrossoverPlan& plan) {
  constexpr double kFastest = 1e6;
  constexpr double kLongest = 1 << 20;
  constexpr int32_t kMostRequests = 4096;  // that the router explains
  RETURN_IF_ERROR(CheckAscending("--links", plan.links_gb_per_s, kFastest));
  RETURN_IF_ERROR(CheckAscending("--prompts", plan.prompts, kLongest));
  RETURN_IF_ERROR(CheckAscending("--loads", plan.loads, 100));
  RETURN_IF_ERROR(CheckCount("--output-len", plan.output_tokens, 1, 1 << 20));
  RETURN_IF_ERROR(CheckCount("--num-prompts", plan.requests, 10, kMostRequests));
  RETURN_IF_ERROR(CheckCount("--samples", plan.samples, 0, plan.requests - plan.requests / 5));
  return OptionsOf(plan, plan.links_gb_per_s.front()).status();
}

double RegretPercent(const std::vector<CrossoverCell>& cells) {
  double regret = 0;
  double oracle = 0;
  for (const CrossoverCell& cell : cells) {
    regret += cell.regret_ms;
    oracle += cell.oracle_ms;
  }
  return oracle > 0 ? 100 * regret / oracle : 0;
}

absl::StatusOr<std::vector<CrossoverCell>> RunCrossover(
    const CrossoverPlan& plan, const std::function<void(const CrossoverCell&)>& progress) {
  std::vector<CrossoverCell> cells;
  for (const double load : plan.loads) {
    for (const int32_t prompt : plan.prompts) {
      for (const double link : plan.links_gb_per_s) {
        cells.push_back({.link_gb_per_s = link, .prompt = prompt, .load = load});
        RETURN_IF_ERROR(RunCell(plan, cells.back()));
        progress(cells.back());
      }
    }
  }
  return cells;
}

Crossing CrossingOf(const std::vector<double>& links, const std::vector<double>& shares) {
  constexpr double kHalf = 0.5;
  if (shares.back() < kHalf) return {Crossing::Kind::kAbove};
  for (size_t i = links.size() - 1; i > 0; --i) {
    if (shares[i - 1] >= kHalf) continue;
    const double part = (kHalf - shares[i - 1]) / (shares[i] - shares[i - 1]);
    return {Crossing::Kind::kAt, links[i - 1] * std::pow(links[i] / links[i - 1], part)};
  }
  return {Crossing::Kind::kBelow};
}

}  // namespace tandem::simulator
