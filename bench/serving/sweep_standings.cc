#include "bench/serving/sweep_standings.h"

#include <algorithm>
#include <map>
#include <utility>

#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace tandem::loadgen {
namespace {

using Json = nlohmann::ordered_json;

std::vector<Contender> ContendersOf(const SweepPlan& plan, const SweepResults& results,
                                    const std::string& workload, double rate) {
  std::vector<Contender> contenders;
  for (const SweepStrategy& strategy : plan.strategies) {
    Contender one{.name = strategy.name, .adapts = Adapts(strategy), .good = {}};
    for (const auto& [point, result] : results) {
      if (point.workload != workload || point.rate != rate) continue;
      if (point.strategy.name != strategy.name) continue;
      one.good.push_back(NumberIn(result, "slo_attainment", "share"));
    }
    one.share = MeanOverSeeds(one.good).mean;
    contenders.push_back(std::move(one));
  }
  return contenders;
}

const Comparison* Find(const LoadStandings& load, const std::string& name) {
  const auto found = std::ranges::find(load.comparisons, name, &Comparison::name);
  return found == load.comparisons.end() ? nullptr : &*found;
}

// "wins 3, ties 8, loses 2 of 15 loads", and where it is furthest behind.
std::string CountsText(const std::vector<LoadStandings>& standings, const std::string& name) {
  std::map<Standing, int> counts;
  const LoadStandings* worst = nullptr;
  double least = 0;
  for (const LoadStandings& load : standings) {
    const Comparison* const one = Find(load, name);
    ++counts[one->standing];
    if (one->standing == Standing::kNoneHolds || !one->margin || one->margin->mean >= least) {
      continue;
    }
    least = one->margin->mean;
    worst = &load;
  }
  std::string text = fmt::format(
      "It wins under {} of {} loads, ties under {} and loses under {}. Under {} no strategy holds.",
      counts[Standing::kWins], standings.size(), counts[Standing::kTies], counts[Standing::kLoses],
      counts[Standing::kNoneHolds]);
  if (worst == nullptr) return text + "\n";
  const Comparison& one = *Find(*worst, name);
  return text + fmt::format(" Furthest behind: {} over {} ({} at {:g} req/s).\n",
                            MarginText(one.margin), one.best_other, worst->workload, worst->rate);
}

std::string TableOf(const std::vector<LoadStandings>& standings, const std::string& name) {
  std::string table =
      fmt::format("\n| workload | req/s | {}: good | best other | its good |", name);
  std::string rule = "\n|---|---|---|---|---|";
  for (const Comparison::Over& over : Find(standings.front(), name)->margins) {
    table += fmt::format(" over {} |", over.name);
    rule += "---|";
  }
  table += " |" + rule + "---|\n";
  for (const LoadStandings& load : standings) {
    const Comparison& one = *Find(load, name);
    table += fmt::format("| {} | {:g} | {:.1f}% | {} | {:.1f}% |", load.workload, load.rate,
                         100 * one.share, one.best_other, 100 * one.best_share);
    for (const Comparison::Over& over : one.margins) {
      table += fmt::format(" {} |", MarginText(over.percent));
    }
    table += fmt::format(" **{}** |\n", Name(one.standing));
  }
  return table;
}

Json MarginJson(const std::optional<SeedMean>& margin) {
  return margin ? Json(margin->mean) : Json(nullptr);
}
Json HalfWidthJson(const std::optional<SeedMean>& margin) {
  return margin ? Json(margin->half_width) : Json(nullptr);
}

Json PlanJson(const SweepPlan& plan) {
  Json json = {{"command", plan.command},
               {"arguments", plan.arguments},
               {"build", plan.build},
               {"requests", plan.requests},
               {"min_seconds", plan.min_seconds},
               {"context_tokens", plan.context_tokens},
               {"seeds", plan.seeds}};
  const auto objective = [&json](const char* name, const std::optional<double>& ms) {
    if (ms) json["objectives_ms"][name] = *ms;
  };
  objective("ttft", plan.objectives.ttft);
  objective("tpot", plan.objectives.tpot);
  objective("e2el", plan.objectives.e2e);
  for (const SweepStrategy& strategy : plan.strategies) {
    json["strategies"].push_back({{"name", strategy.name},
                                  {"policy", strategy.policy},
                                  {"prefill", strategy.prefill},
                                  {"decode", strategy.decode},
                                  {"unified", strategy.unified}});
  }
  return json;
}

Json PointJson(const SweepPoint& point, const Json& result) {
  Json json = {{"workload", point.workload},
               {"rate", point.rate},
               {"seed", point.seed},
               {"strategy", point.strategy.name}};
  json["schedule_hash"] = result.value("schedule_hash", "");
  json["share"] = NumberIn(result, "slo_attainment", "share");
  for (const char* name : {"request_goodput", "median_scheduled_ttft_ms", "p99_scheduled_ttft_ms",
                           "median_tpot_ms", "p99_tpot_ms", "output_throughput", "failed"}) {
    json[name] = NumberIn(result, name);
  }
  if (const auto routes = result.find("routes"); routes != result.end()) json["routes"] = *routes;
  return json;
}

}  // namespace

std::vector<LoadStandings> StandingsOf(const SweepPlan& plan, const SweepResults& results) {
  std::vector<LoadStandings> standings;
  for (const std::string& workload : plan.workloads) {
    for (const double rate : RatesOf(plan, workload)) {
      const std::vector<Contender> contenders = ContendersOf(plan, results, workload, rate);
      standings.push_back({workload, rate, WinnerOf(contenders), Compare(contenders)});
    }
  }
  return standings;
}

std::string StandingsMarkdown(const std::vector<LoadStandings>& standings) {
  std::string text;
  for (const Comparison& one : standings.front().comparisons) {
    text += fmt::format(
        "\n## {} against the strategies that do not adapt\n\nGood requests relative to theirs, "
        "seed "
        "by seed. It wins where it is more than {:g}% above the best of them, ties within {:g}%, "
        "and "
        "none holds where fewer than {:g}% of the requests are good with each.\n\n",
        one.name, kTiePercent, kTiePercent, 100 * kLeastShare);
    text += CountsText(standings, one.name) + TableOf(standings, one.name);
  }
  return text;
}

Json ToJson(const Comparison& comparison) {
  Json json = {{"strategy", comparison.name},
               {"share", comparison.share},
               {"best_other", comparison.best_other},
               {"best_other_share", comparison.best_share},
               {"margin_percent", MarginJson(comparison.margin)},
               {"half_width", HalfWidthJson(comparison.margin)},
               {"standing", Name(comparison.standing)}};
  for (const Comparison::Over& over : comparison.margins) {
    json["margins"][over.name] = {{"percent", MarginJson(over.percent)},
                                  {"half_width", HalfWidthJson(over.percent)}};
  }
  return json;
}

Json SweepJson(const SweepPlan& plan, const SweepResults& results) {
  const bool simulated = std::ranges::any_of(
      results, [](const SweepResult& one) { return one.result.value("simulated", false); });
  Json json = {{"simulated", simulated}, {"plan", PlanJson(plan)}};
  for (const LoadStandings& load : StandingsOf(plan, results)) {
    Json one = {{"workload", load.workload}, {"rate", load.rate}, {"winner", load.winner}};
    one["comparisons"] = Json::array();
    for (const Comparison& comparison : load.comparisons) {
      one["comparisons"].push_back(ToJson(comparison));
    }
    json["standings"].push_back(std::move(one));
  }
  for (const auto& [point, result] : results) json["points"].push_back(PointJson(point, result));
  return json;
}

}  // namespace tandem::loadgen
