#include "bench/simulator/slo_map_report.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <map>
#include <utility>

#include "bench/serving/heat_map.h"
#include "bench/serving/report_page.h"
#include "bench/serving/sweep_standings.h"
#include "fmt/format.h"
#include "fmt/ranges.h"
#include "nlohmann/json.hpp"

namespace tandem::simulator {
namespace {

using loadgen::Comparison;
using loadgen::Standing;
using Json = nlohmann::ordered_json;
using CellText = std::function<std::string(const SloCell&)>;

std::string LoadText(const SloMap& map) {
  return fmt::format("{} at {:g} req/s", map.workload, map.rate);
}

double BestShare(const SloCell& cell) {
  return std::ranges::max(cell.contenders, {}, &loadgen::Contender::share).share;
}

// A row per TTFT, a column per TPOT.
std::string TableOf(const SloMapPlan& plan, const SloMap& map, const CellText& text) {
  std::string table = "\n| TTFT \\ TPOT |";
  std::string rule = "\n|---|";
  for (const double tpot : plan.tpot_ms) {
    table += fmt::format(" {:g} ms |", tpot);
    rule += "---|";
  }
  table += rule + "\n";
  for (size_t row = 0; row < plan.ttft_ms.size(); ++row) {
    table += fmt::format("| {:g} ms |", plan.ttft_ms[row]);
    for (size_t column = 0; column < plan.tpot_ms.size(); ++column) {
      table += fmt::format(" {} |", text(map.cells[row * plan.tpot_ms.size() + column]));
    }
    table += "\n";
  }
  return table;
}

std::string WinnerText(const SloCell& cell) {
  if (BestShare(cell) < loadgen::kLeastShare) return "none holds";
  return fmt::format("{} {:.0f}%", cell.winner, 100 * BestShare(cell));
}

std::string ComparisonText(const Comparison& one) {
  if (one.standing == Standing::kNoneHolds) return "none holds";
  return fmt::format("{} ({})", MarginText(one.margin), one.best_other);
}

std::string SharesText(const SloCell& cell) {
  std::string text = fmt::format("TTFT {:g} ms, TPOT {:g} ms: ", cell.ttft_ms, cell.tpot_ms);
  for (const loadgen::Contender& one : cell.contenders) {
    text += fmt::format("{}{} {:.1f}%", &one == &cell.contenders.front() ? "" : ", ", one.name,
                        100 * one.share);
  }
  return text;
}

std::string SectionOf(const SloMapPlan& plan, const SloMap& map) {
  std::string text =
      fmt::format("\n## {}\n\nThe best strategy and its share of good requests\n", LoadText(map));
  text += TableOf(plan, map, WinnerText);
  for (size_t i = 0; i < map.cells.front().comparisons.size(); ++i) {
    text += fmt::format("\nMargin of {} over the best of the strategies that do not adapt\n",
                        map.cells.front().comparisons[i].name);
    text += TableOf(plan, map,
                    [i](const SloCell& cell) { return ComparisonText(cell.comparisons[i]); });
  }
  return text;
}

// Blue where it wins, red where it loses, white within a percent or so; grey where none holds.
std::string HeatMapOf(const SloMapPlan& plan, const SloMap& map, size_t comparison) {
  constexpr double kFullColor = 20;  // percent
  loadgen::HeatMap heat{
      .title = fmt::format("{}: {} over the best of the others", LoadText(map),
                           map.cells.front().comparisons[comparison].name),
      .x_label = "TPOT objective (ms)",
      .y_label = "TTFT objective (ms)",
      .columns = {},
      .rows = {},
      .cells = {},
      .legend = "blue: it wins, red: it loses by up to 20% and more; grey: none holds"};
  for (const double tpot : plan.tpot_ms) heat.columns.push_back(fmt::format("{:g}", tpot));
  for (const double ttft : plan.ttft_ms) heat.rows.push_back(fmt::format("{:g}", ttft));
  for (const SloCell& cell : map.cells) {
    const Comparison& one = cell.comparisons[comparison];
    loadgen::HeatCell shown{.text = "none",
                            .value = std::numeric_limits<double>::quiet_NaN(),
                            .detail = SharesText(cell)};
    if (one.standing != Standing::kNoneHolds) {
      shown.value = one.margin ? one.margin->mean / kFullColor : 1;
      shown.text = one.margin ? fmt::format("{:+.1f}%", one.margin->mean) : "alone";
    }
    heat.cells.push_back(std::move(shown));
  }
  return RenderHeatMap(heat);
}

std::string CountsText(const std::vector<SloMap>& maps, size_t comparison) {
  std::map<Standing, int> counts;
  double least = INFINITY;
  for (const SloMap& map : maps) {
    for (const SloCell& cell : map.cells) {
      const Comparison& one = cell.comparisons[comparison];
      ++counts[one.standing];
      if (one.standing == Standing::kNoneHolds || !one.margin) continue;
      least = std::min(least, one.margin->mean);
    }
  }
  std::string text = fmt::format(
      "{} wins under {} pairs of objectives, ties under {}, loses under "
      "{}; under {} none holds",
      maps.front().cells.front().comparisons[comparison].name, counts[Standing::kWins],
      counts[Standing::kTies], counts[Standing::kLoses], counts[Standing::kNoneHolds]);
  if (least < INFINITY) text += fmt::format("; the lowest margin is {:+.1f}%", least);
  return text;
}

std::string HeadingOf(const SloMapPlan& plan, const std::vector<SloMap>& maps) {
  const loadgen::SweepPlan& sweep = plan.sweep;
  std::string text = fmt::format(
      "**Simulated: no figure is a measurement of a real device.** {} strategies with {} workers "
      "each, {} requests per run, {} seeds (mean ± half of its 95% interval), `{} {}`, version {}. "
      "A "
      "strategy wins where its share of good requests is more than {:g}% above that of the best of "
      "the others, and none holds where fewer than {:g}% are good with each.\n",
      sweep.strategies.size(), sweep.strategies.front().workers(), sweep.requests,
      sweep.seeds.size(), sweep.command, fmt::join(sweep.arguments, " "), sweep.build,
      loadgen::kTiePercent, 100 * loadgen::kLeastShare);
  for (size_t i = 0; i < maps.front().cells.front().comparisons.size(); ++i) {
    text += "\n" + CountsText(maps, i) + ".\n";
  }
  return text;
}

Json CellJson(const SloCell& cell) {
  Json json = {{"ttft_ms", cell.ttft_ms}, {"tpot_ms", cell.tpot_ms}, {"winner", cell.winner}};
  for (const loadgen::Contender& one : cell.contenders) json["shares"][one.name] = one.good;
  json["comparisons"] = Json::array();
  for (const Comparison& one : cell.comparisons) json["comparisons"].push_back(ToJson(one));
  return json;
}

}  // namespace

std::string LineOf(const SloMap& map) {
  std::string line = LoadText(map);
  for (size_t i = 0; i < map.cells.front().comparisons.size(); ++i) {
    line += ": " + CountsText({map}, i);
  }
  return line;
}

Json SloMapJson(const SloMapPlan& plan, const std::vector<SloMap>& maps) {
  Json json = {{"simulated", true},
               {"command", plan.sweep.command},
               {"arguments", plan.sweep.arguments},
               {"build", plan.sweep.build},
               {"requests", plan.sweep.requests},
               {"context_tokens", plan.sweep.context_tokens},
               {"seeds", plan.sweep.seeds},
               {"ttft_ms", plan.ttft_ms},
               {"tpot_ms", plan.tpot_ms}};
  for (const SloMap& map : maps) {
    Json one = {{"workload", map.workload}, {"rate", map.rate}};
    for (const SloCell& cell : map.cells) one["cells"].push_back(CellJson(cell));
    json["maps"].push_back(std::move(one));
  }
  return json;
}

std::string SloMapMarkdown(const SloMapPlan& plan, const std::vector<SloMap>& maps) {
  std::string text = "# Map of objectives\n\n" + HeadingOf(plan, maps);
  for (const SloMap& map : maps) text += SectionOf(plan, map);
  return text;
}

std::string SloMapHtml(const SloMapPlan& plan, const std::vector<SloMap>& maps) {
  std::string figures;
  for (const SloMap& map : maps) {
    for (size_t i = 0; i < map.cells.front().comparisons.size(); ++i) {
      figures += HeatMapOf(plan, map, i);
    }
  }
  return loadgen::ReportPage("Map of objectives", figures, SloMapMarkdown(plan, maps));
}

}  // namespace tandem::simulator
