#include "bench/simulator/slo_map.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "base/status.h"
#include "bench/serving/sweep_workload.h"
#include "bench/serving/workload.h"

namespace tandem::simulator {
namespace {

using loadgen::Contender;
using loadgen::RequestLatency;

absl::Status CheckGrid(const char* flag, const std::vector<double>& values) {
  constexpr double kLongestMs = 1e9;
  constexpr size_t kMostValues = 64;
  if (values.empty() || values.size() > kMostValues) {
    return InvalidArgument("{}: give 1 to {} objectives", flag, kMostValues);
  }
  for (size_t i = 0; i < values.size(); ++i) {
    if (!(values[i] > 0 && values[i] <= kLongestMs)) {
      return InvalidArgument("{}: {} is no number of milliseconds above 0", flag, values[i]);
    }
    if (i > 0 && values[i] <= values[i - 1]) {
      return InvalidArgument("{}: {} comes after {}: give ascending numbers", flag, values[i],
                             values[i - 1]);
    }
  }
  return absl::OkStatus();
}

// The requests of one run that are judged: their latencies, nothing of one that is not complete.
using Judged = std::vector<std::optional<RequestLatency>>;

double GoodShare(const Judged& judged, const loadgen::Objectives& objectives) {
  const auto good = std::ranges::count_if(judged, [&](const auto& latency) {
    return latency && MeetsObjectives(*latency, objectives);
  });
  return judged.empty() ? 0 : static_cast<double>(good) / static_cast<double>(judged.size());
}

// One load with one seed, for all strategies.
class Load {
 public:
  Load(const SloMapPlan& plan, uint64_t seed, const loadgen::Schedule& schedule)
      : plan_(plan), seed_(seed), schedule_(schedule) {}

  absl::StatusOr<Judged> Run(const loadgen::SweepStrategy& strategy,
                             const loadgen::Objectives& objectives) const {
    ASSIGN_OR_RETURN(const SimulationOptions options,
                     OptionsOf(strategy, plan_.machines, objectives, seed_));
    RETURN_IF_ERROR(loadgen::CheckFits(schedule_, options.fleet.front().model->max_context_tokens));
    loadgen::RunCounts counts;
    ASSIGN_OR_RETURN(const SimulationResult result, Simulate(options, schedule_, counts));
    const Duration warm_up = loadgen::WarmUpOf(schedule_);
    Judged judged;
    for (const loadgen::RequestRecord& record : result.run.records) {
      if (record.scheduled < warm_up) continue;
      judged.emplace_back();
      if (Judge(record, /*ignore_eos=*/true) == loadgen::Verdict::kComplete) {
        judged.back() = LatencyOf(record);
      }
    }
    return judged;
  }

  // Adds what the strategy did to each cell.
  absl::Status AddTo(std::vector<SloCell>& cells, size_t index) const {
    const loadgen::SweepStrategy& strategy = plan_.sweep.strategies[index];
    Judged judged;
    for (SloCell& cell : cells) {
      const loadgen::Objectives objectives = {.ttft = cell.ttft_ms, .tpot = cell.tpot_ms};
      if (&cell == &cells.front() || Adapts(strategy)) {
        ASSIGN_OR_RETURN(judged, Run(strategy, objectives));
      }
      cell.contenders[index].good.push_back(GoodShare(judged, objectives));
    }
    return absl::OkStatus();
  }

 private:
  const SloMapPlan& plan_;
  const uint64_t seed_;
  const loadgen::Schedule& schedule_;
};

std::vector<SloCell> EmptyCells(const SloMapPlan& plan) {
  std::vector<Contender> contenders;
  for (const loadgen::SweepStrategy& strategy : plan.sweep.strategies) {
    contenders.push_back({.name = strategy.name, .adapts = Adapts(strategy), .good = {}});
  }
  std::vector<SloCell> cells;
  for (const double ttft : plan.ttft_ms) {
    for (const double tpot : plan.tpot_ms) {
      cells.push_back({.ttft_ms = ttft,
                       .tpot_ms = tpot,
                       .contenders = contenders,
                       .winner = {},
                       .comparisons = {}});
    }
  }
  return cells;
}

absl::Status FillMap(const SloMapPlan& plan, SloMap& map) {
  map.cells = EmptyCells(plan);
  for (const uint64_t seed : plan.sweep.seeds) {
    ASSIGN_OR_RETURN(
        const loadgen::Schedule schedule,
        loadgen::MakeSweepSchedule(map.workload, {.context_tokens = plan.sweep.context_tokens,
                                                  .rate = map.rate,
                                                  .requests = plan.sweep.requests,
                                                  .seed = seed}));
    const Load load(plan, seed, schedule);
    for (size_t i = 0; i < plan.sweep.strategies.size(); ++i) {
      RETURN_IF_ERROR(load.AddTo(map.cells, i));
    }
  }
  for (SloCell& cell : map.cells) {
    for (Contender& one : cell.contenders) one.share = loadgen::MeanOverSeeds(one.good).mean;
    cell.winner = WinnerOf(cell.contenders);
    cell.comparisons = Compare(cell.contenders);
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status Validate(const SloMapPlan& plan) {
  RETURN_IF_ERROR(CheckGrid("--ttft", plan.ttft_ms));
  RETURN_IF_ERROR(CheckGrid("--tpot", plan.tpot_ms));
  loadgen::SweepPlan sweep = plan.sweep;
  sweep.objectives.ttft = plan.ttft_ms.front();
  RETURN_IF_ERROR(Validate(sweep));
  for (const loadgen::SweepStrategy& strategy : sweep.strategies) {
    RETURN_IF_ERROR(FleetOf(strategy, plan.machines).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<SloMap>> MakeSloMaps(
    const SloMapPlan& plan, const std::function<void(const SloMap&)>& progress) {
  std::vector<SloMap> maps;
  for (const std::string& workload : plan.sweep.workloads) {
    for (const double rate : RatesOf(plan.sweep, workload)) {
      maps.push_back({.workload = workload, .rate = rate, .cells = {}});
      RETURN_IF_ERROR(FillMap(plan, maps.back()));
      progress(maps.back());
    }
  }
  return maps;
}

}  // namespace tandem::simulator
