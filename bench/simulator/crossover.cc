#include "bench/simulator/crossover.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

#include "base/status.h"
#include "bench/serving/distribution.h"
#include "bench/serving/workload.h"

namespace tandem::simulator {
namespace {

// The first requests find an idle fleet and a router that has learned nothing, so none of the first
// fifth is sampled. Nor is any of the last two fifths: what a request costs those after it depends
// on how many these are, and when a run ends is nothing that a router could know.
constexpr double kFirstSampled = 0.2;
constexpr double kLastSampled = 0.6;
// A run lasts several times as long as a request stays, or it would end before it is in balance.
constexpr double kLeastSeconds = 5;
// Costs that differ by a smaller share are alike: a run that differs in anything else moves them by
// more.
constexpr double kDecisive = 0.05;
// The router explains so many.
constexpr int32_t kMostRequests = 4096;
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
  workload.num_prompts = cell.requests;
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

CrossoverSample SampleOf(size_t index, const SimulationResult& result,
                         const std::vector<v1::Route>& routes) {
  CrossoverSample sample{.request = index, .taken = routes[index]};
  if (index >= result.explanations.size()) return sample;
  const v1::RequestExplanation& why = result.explanations[index];
  if (why.decisions().empty()) return sample;
  sample.predicted_unified_ms = CostOn(why.decisions(0), v1::ROUTE_UNIFIED);
  sample.predicted_disaggregated_ms = CostOn(why.decisions(0), v1::ROUTE_DISAGGREGATED);
  return sample;
}

// Runs samples of the requests on both routes.
absl::Status AddReplays(const CrossoverPlan& plan, const RouteReplay& replay,
                        const SimulationResult& result, const std::vector<v1::Route>& routes,
                        CrossoverCell& cell) {
  const double between = (kLastSampled - kFirstSampled) / plan.samples;
  for (int32_t i = 0; i < plan.samples; ++i) {
    const auto index = static_cast<size_t>(cell.requests * (kFirstSampled + i * between));
    CrossoverSample& sample = cell.samples.emplace_back(SampleOf(index, result, routes));
    ASSIGN_OR_RETURN(sample.replayed, replay.CostsOf(index));
    const double unified = sample.replayed.unified.total_ms();
    const double disaggregated = sample.replayed.disaggregated.total_ms();
    const double least = std::min(unified, disaggregated);
    cell.regret_ms += (sample.taken == v1::ROUTE_UNIFIED ? unified : disaggregated) - least;
    cell.oracle_ms += least;
  }
  cell.decisive = SharesOf(cell.samples);
  return absl::OkStatus();
}

absl::Status RunCell(const CrossoverPlan& plan, CrossoverCell& cell) {
  ASSIGN_OR_RETURN(const SimulationOptions options, OptionsOf(plan, cell.link_gb_per_s));
  const WorkerModel& model = *options.fleet.front().model;
  cell.rate = RateOf(cell, model.steps);
  cell.requests = std::clamp(static_cast<int32_t>(std::ceil(kLeastSeconds * cell.rate)),
                             plan.requests, kMostRequests);
  ASSIGN_OR_RETURN(const loadgen::Schedule schedule,
                   ScheduleOf(plan, cell, model.max_context_tokens));
  loadgen::RunCounts counts;
  ASSIGN_OR_RETURN(const SimulationResult result, Simulate(options, schedule, counts));
  AddPredictions(result, cell);
  const std::vector<v1::Route> routes = RoutesOf(result);
  const auto apart = std::ranges::count(routes, v1::ROUTE_DISAGGREGATED);
  cell.chosen = static_cast<double>(apart) / cell.requests;
  if (plan.samples == 0 || routes.size() < schedule.requests.size()) return absl::OkStatus();
  const absl::StatusOr<RouteReplay> replay = RouteReplay::New(options, schedule, routes);
  // More than the fleet can do: requests failed, and their times say nothing.
  if (absl::IsFailedPrecondition(replay.status())) return absl::OkStatus();
  RETURN_IF_ERROR(replay.status());
  cell.replay_difference = DifferenceOf(*replay, result);
  return AddReplays(plan, *replay, result, routes, cell);
}

}  // namespace

absl::Status Validate(const CrossoverPlan& plan) {
  constexpr double kFastest = 1e6;
  constexpr double kLongest = 1 << 20;
  RETURN_IF_ERROR(CheckAscending("--links", plan.links_gb_per_s, kFastest));
  RETURN_IF_ERROR(CheckAscending("--prompts", plan.prompts, kLongest));
  RETURN_IF_ERROR(CheckAscending("--loads", plan.loads, 100));
  RETURN_IF_ERROR(CheckCount("--output-len", plan.output_tokens, 1, 1 << 20));
  RETURN_IF_ERROR(CheckCount("--num-prompts", plan.requests, 10, kMostRequests));
  RETURN_IF_ERROR(CheckCount("--samples", plan.samples, 0, plan.requests * 2 / 5));
  return OptionsOf(plan, plan.links_gb_per_s.front()).status();
}

bool CrossoverSample::is_decisive() const {
  const double least =
      std::min(std::abs(replayed.unified.total_ms()), std::abs(replayed.disaggregated.total_ms()));
  return std::abs(advantage_ms()) > kDecisive * least;
}

CrossoverShares SharesOf(const std::vector<CrossoverSample>& samples) {
  CrossoverShares shares;
  for (const CrossoverSample& one : samples) {
    if (!one.is_decisive() || !one.predicted_unified_ms || !one.predicted_disaggregated_ms) {
      continue;
    }
    const bool predicted = *one.predicted_disaggregated_ms < *one.predicted_unified_ms;
    const bool replayed = one.advantage_ms() > 0;
    ++shares.samples;
    shares.predicted += predicted ? 1 : 0;
    shares.chosen += one.taken == v1::ROUTE_DISAGGREGATED ? 1 : 0;
    shares.replayed += replayed ? 1 : 0;
    shares.foreseen += predicted == replayed ? 1 : 0;
  }
  if (shares.samples == 0) return shares;
  for (double* const share :
       {&shares.predicted, &shares.chosen, &shares.replayed, &shares.foreseen}) {
    *share /= shares.samples;
  }
  return shares;
}

double ForeseenPercent(const std::vector<CrossoverCell>& cells) {
  double foreseen = 0;
  double samples = 0;
  for (const CrossoverCell& cell : cells) {
    foreseen += cell.decisive.foreseen * cell.decisive.samples;
    samples += cell.decisive.samples;
  }
  return samples > 0 ? 100 * foreseen / samples : 0;
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
