#include "bench/simulator/simulated_point.h"

#include <utility>

#include "base/status.h"
#include "bench/serving/progress.h"
#include "bench/serving/workload.h"
#include "bench/simulator/fleet_report.h"
#include "nlohmann/json.hpp"

namespace tandem::simulator {

Slo SloOf(const loadgen::Objectives& objectives) {
  Slo slo;
  if (objectives.ttft) slo.ttft = ModelTime(*objectives.ttft);
  if (objectives.tpot) slo.tpot = ModelTime(*objectives.tpot);
  return slo;
}

absl::StatusOr<std::vector<WorkerConfig>> FleetOf(const loadgen::SweepStrategy& strategy,
                                                  const SimulatedMachines& machines) {
  std::vector<FleetPart> parts;
  const auto add = [&](v1::WorkerRole role, int count) {
    if (count > 0) parts.push_back({.role = role, .count = count, .file = machines.file});
  };
  add(v1::WORKER_ROLE_PREFILL, strategy.prefill);
  add(v1::WORKER_ROLE_DECODE, strategy.decode);
  add(v1::WORKER_ROLE_UNIFIED, strategy.unified);
  return MakeFleet(parts, machines.overrides);
}

absl::StatusOr<SimulationOptions> OptionsOf(const loadgen::SweepStrategy& strategy,
                                            const SimulatedMachines& machines,
                                            const loadgen::Objectives& objectives, uint64_t seed) {
  SimulationOptions options;
  ASSIGN_OR_RETURN(options.fleet, FleetOf(strategy, machines));
  options.policy = strategy.policy;
  options.slo = SloOf(objectives);
  options.run = loadgen::PointRunOptions();
  options.run.id_prefix = "sim";
  options.seed = seed;
  return options;
}

absl::StatusOr<nlohmann::ordered_json> SimulatePoint(const SimulatedMachines& machines,
                                                     const loadgen::SweepPlan& plan,
                                                     const loadgen::SweepPoint& point,
                                                     const loadgen::Schedule& schedule) {
  ASSIGN_OR_RETURN(const SimulationOptions options,
                   OptionsOf(point.strategy, machines, plan.objectives, point.seed));
  const WorkerModel& model = *options.fleet.front().model;
  RETURN_IF_ERROR(loadgen::CheckFits(schedule, model.max_context_tokens));
  loadgen::RunCounts counts;
  SimulationResult result;
  {
    const loadgen::ProgressDisplay progress(loadgen::NameOf(point),
                                            static_cast<int64_t>(schedule.requests.size()), counts);
    ASSIGN_OR_RETURN(result, Simulate(options, schedule, counts));
  }
  nlohmann::ordered_json json = PointResult(
      plan, point, schedule, result.run,
      {.backend = "simulated", .model = model.model, .has_each_token = result.has_each_token});
  AddFleet(result, json);
  return json;
}

}  // namespace tandem::simulator
