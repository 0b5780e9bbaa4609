#pragma once

#include <string>
#include <vector>

#include "bench/serving/sweep_comparison.h"
#include "bench/serving/sweep_result.h"

namespace tandem::loadgen {

// Which strategy was best under one load, and how those that adapt did against the others.
struct LoadStandings {
  std::string workload;
  double rate = 0;
  std::string winner;
  std::vector<Comparison> comparisons;
};

// By workload and rate, in the order of the plan.
std::vector<LoadStandings> StandingsOf(const SweepPlan& plan, const SweepResults& results);

// A section per strategy that adapts: how often it wins, ties and loses, and by how much, under
// each load and over each other strategy. Empty where no strategy adapts.
std::string StandingsMarkdown(const std::vector<LoadStandings>& standings);

// One comparison with the keys "strategy", "share", "best_other", "best_other_share",
// "margin_percent", "half_width", "standing" and "margins". Unknown margins are null.
nlohmann::ordered_json ToJson(const Comparison& comparison);

// The plan, the standings and the main figures of every point, small enough for a repository.
nlohmann::ordered_json SweepJson(const SweepPlan& plan, const SweepResults& results);

}  // namespace tandem::loadgen
