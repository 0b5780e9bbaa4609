#include "bench/simulator/simulate.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <set>
#include <utility>

#include "base/status.h"
#include "bench/serving/progress.h"
#include "bench/serving/publish.h"
#include "bench/simulator/capacity.h"
#include "bench/simulator/fleet_report.h"
#include "bench/simulator/simulated_point.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace tandem::simulator {
namespace {

using loadgen::Schedule;

// With up to so many tokens in all the router gets a report of each one.
constexpr int64_t kMostSingleTokens = 5'000'000;

TokenEvents TokenEventsFor(TokenReports tokens, const Schedule& schedule) {
  if (tokens == TokenReports::kEach) return TokenEvents::kEach;
  if (tokens == TokenReports::kGrouped) return TokenEvents::kGrouped;
  int64_t outputs = 0;
  for (const loadgen::ScheduledRequest& request : schedule.requests) {
    outputs += request.output_tokens;
  }
  return outputs <= kMostSingleTokens ? TokenEvents::kEach : TokenEvents::kGrouped;
}

absl::Status CheckContext(const std::vector<WorkerConfig>& fleet, const Schedule& schedule) {
  int32_t longest = 0;
  for (const WorkerConfig& worker : fleet) {
    longest = std::max(longest, worker.model->max_context_tokens);
  }
  return loadgen::CheckFits(schedule, longest);
}

absl::Status CheckCapacityFlags(const SimulateOptions& options) {
  if (!options.find_capacity) return absl::OkStatus();
  if (!options.load.summary.objectives.any()) {
    return InvalidArgument("--find-capacity needs objectives: give --goodput ttft:MS and so on");
  }
  if (!(options.attainment > 0 && options.attainment <= 1)) {
    return InvalidArgument("--attainment={}: give a share above 0 and up to 1", options.attainment);
  }
  if (!options.disturbances.empty()) {
    return InvalidArgument("--find-capacity varies the fleet: leave --disturb out");
  }
  const auto& arrivals = options.load.arrivals;
  const bool all_at_once =
      arrivals && arrivals->ramp == loadgen::Ramp::kNone && std::isinf(arrivals->rate);
  if (!all_at_once) return absl::OkStatus();
  return InvalidArgument("--find-capacity needs a load: give --request-rate, or a trace");
}

// One run of one fleet, summed up.
struct Run {
  SimulationResult result;
  loadgen::Summary summary;
};

absl::StatusOr<Run> RunOnce(const SimulateOptions& options, const SimulationOptions& simulation,
                            const Schedule& schedule, const std::string& what) {
  loadgen::RunCounts counts;
  const loadgen::ProgressDisplay progress(what, static_cast<int64_t>(schedule.requests.size()),
                                          counts);
  Run run;
  ASSIGN_OR_RETURN(run.result, Simulate(simulation, schedule, counts));
  loadgen::SummaryOptions summary = options.load.summary;
  summary.token_gaps = run.result.has_each_token;
  run.summary = loadgen::Summarize(run.result.run, summary);
  return run;
}

// Runs once and publishes the report. `more` is added to its JSON.
absl::Status RunAndReport(const SimulateOptions& options, const SimulationOptions& simulation,
                          const Schedule& schedule, const std::string& fleet,
                          nlohmann::ordered_json more) {
  ASSIGN_OR_RETURN(Run run, RunOnce(options, simulation, schedule, "simulated requests"));
  AddFleet(run.result, more);
  const loadgen::ReportExtras extras = {
      .heading = Heading(fleet, simulation.policy),
      .text = FleetText(run.result),
      .add_to_json = [&more](nlohmann::ordered_json& json) { json.update(more); },
      .json_on_stdout = options.json};
  const loadgen::Outcome outcome{
      Describe(options.load, "simulated", simulation.fleet.front().model->model, schedule),
      std::move(run.result.run), std::move(run.summary)};
  return Publish(options.load, outcome, {}, extras);
}

FleetSize MostOf(const std::vector<FleetPart>& parts) {
  FleetSize most;
  for (const FleetPart& part : parts) {
    if (part.role == v1::WORKER_ROLE_UNIFIED) most.unified += part.count;
    if (part.role == v1::WORKER_ROLE_PREFILL) most.prefill += part.count;
    if (part.role == v1::WORKER_ROLE_DECODE) most.decode += part.count;
  }
  return most;
}

// The first workers of each role.
std::vector<WorkerConfig> PartOf(const std::vector<WorkerConfig>& fleet, const FleetSize& size) {
  FleetSize left = size;
  std::vector<WorkerConfig> part;
  for (const WorkerConfig& worker : fleet) {
    int32_t& count = worker.role == v1::WORKER_ROLE_UNIFIED   ? left.unified
                     : worker.role == v1::WORKER_ROLE_PREFILL ? left.prefill
                                                              : left.decode;
    if (count-- > 0) part.push_back(worker);
  }
  return part;
}

nlohmann::ordered_json ToJson(const CapacityProbe& probe) {
  return {{"workers", probe.size.workers()},      {"unified", probe.size.unified},
          {"prefill", probe.size.prefill},        {"decode", probe.size.decode},
          {"attainment", probe.attainment.share}, {"low", probe.attainment.low},
          {"high", probe.attainment.high},        {"request_goodput", probe.goodput}};
}

std::string LineOf(const CapacityProbe& probe) {
  return fmt::format("{:<28}{:>6.2f}% good (95% within {:.1f} and {:.1f}), goodput {:.3f} req/s\n",
                     ToText(probe.size), probe.attainment.share * 100, probe.attainment.low * 100,
                     probe.attainment.high * 100, probe.goodput);
}

std::string PlanText(const CapacityPlan& plan, const FleetSize& most, double attainment) {
  std::string text;
  const auto add = [&](const char* what, const std::optional<CapacityProbe>& found,
                       const FleetSize& largest) {
    if (largest.workers() == 0) return;
    text += found ? fmt::format("Fewest workers, {}: {} ({})\n", what, found->size.workers(),
                                ToText(found->size))
                  : fmt::format("Not even {} have {:g}% good requests\n", ToText(largest),
                                attainment * 100);
  };
  add("unified", plan.unified, {.unified = most.unified});
  add("disaggregated", plan.disaggregated, {.prefill = most.prefill, .decode = most.decode});
  return text;
}

// Runs fleets of different sizes on one schedule and reports on the smallest one that carries it.
absl::Status Search(const SimulateOptions& options, const std::vector<FleetPart>& parts,
                    SimulationOptions simulation, const Schedule& schedule) {
  const std::vector<WorkerConfig> largest = simulation.fleet;
  const FleetSize most = MostOf(parts);
  absl::Status failed;
  const CapacityPlan plan = FindCapacity(most, options.attainment, [&](const FleetSize& size) {
    simulation.fleet = PartOf(largest, size);
    const absl::StatusOr<Run> run = RunOnce(options, simulation, schedule, ToText(size));
    if (!run.ok()) {
      failed = run.status();
      return CapacityProbe{.size = size};
    }
    CapacityProbe probe{.size = size,
                        .attainment = run->summary.attainment,
                        .goodput = run->summary.goodput.value_or(0)};
    if (!options.json) fmt::print("{}", LineOf(probe));
    std::fflush(stdout);
    return probe;
  });
  RETURN_IF_ERROR(failed);
  if (!options.json) fmt::print("{}", PlanText(plan, most, options.attainment));
  std::optional<CapacityProbe> best = plan.unified;
  if (!best || (plan.disaggregated && plan.disaggregated->size.workers() < best->size.workers())) {
    best = plan.disaggregated ? plan.disaggregated : plan.unified;
  }
  const FleetSize shown = best ? best->size : plan.probes.front().size;
  simulation.fleet = PartOf(largest, shown);
  nlohmann::ordered_json search = {{"attainment", options.attainment}};
  search["unified"] = plan.unified ? ToJson(*plan.unified) : nullptr;
  search["disaggregated"] = plan.disaggregated ? ToJson(*plan.disaggregated) : nullptr;
  for (const CapacityProbe& probe : plan.probes) search["probes"].push_back(ToJson(probe));
  return RunAndReport(options, simulation, schedule, ToText(shown),
                      {{"capacity_search", std::move(search)}});
}

}  // namespace

absl::Status RunSimulate(const SimulateOptions& options) {
  RETURN_IF_ERROR(CheckCapacityFlags(options));
  ASSIGN_OR_RETURN(const std::vector<FleetPart> parts, ParseFleet(options.fleet));
  SimulationOptions simulation = options.simulation;
  ASSIGN_OR_RETURN(simulation.fleet, MakeFleet(parts, options.overrides));
  for (const std::string& text : options.disturbances) {
    ASSIGN_OR_RETURN(simulation.disturbances.emplace_back(),
                     ParseDisturbance(text, simulation.fleet));
  }
  ASSIGN_OR_RETURN(const Schedule schedule,
                   MakeSchedule(options.load.workload, options.load.arrivals, options.load.seed));
  RETURN_IF_ERROR(CheckWarmUp(options.load, schedule));
  RETURN_IF_ERROR(CheckContext(simulation.fleet, schedule));
  simulation.network.token_events = TokenEventsFor(options.tokens, schedule);
  simulation.run = options.load.run;
  simulation.run.closed_loop = IsClosedLoop(options.load);
  simulation.run.id_prefix = "sim";
  simulation.seed = options.load.seed;
  simulation.slo = SloOf(options.load.summary.objectives);
  if (!options.json) PrintSchedule(options.load, schedule);
  if (options.load.dry_run) return absl::OkStatus();
  if (options.find_capacity) return Search(options, parts, std::move(simulation), schedule);
  return RunAndReport(options, simulation, schedule, Describe(parts), {});
}

}  // namespace tandem::simulator
