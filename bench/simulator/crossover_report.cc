#include "bench/simulator/crossover_report.h"

#include <algorithm>
#include <cmath>
#include <functional>
#include <limits>
#include <optional>
#include <span>
#include <utility>

#include "bench/serving/heat_map.h"
#include "bench/serving/report_page.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace tandem::simulator {
namespace {

using Json = nlohmann::ordered_json;
using ShareOfSamples = double CrossoverShares::*;

double RegretPercentOf(const CrossoverCell& cell) { return RegretPercent({cell}); }

// The cells of one load and prompt, by link. Cells come in the order of RunCrossover.
std::span<const CrossoverCell> RowOf(const CrossoverPlan& plan,
                                     const std::vector<CrossoverCell>& cells, size_t load,
                                     size_t prompt) {
  const size_t links = plan.links_gb_per_s.size();
  return std::span(cells).subspan((load * plan.prompts.size() + prompt) * links, links);
}

// Over the cells in which the route of some sample matters.
std::string CrossingText(std::span<const CrossoverCell> row, ShareOfSamples share) {
  std::vector<double> links;
  std::vector<double> shares;
  for (const CrossoverCell& cell : row) {
    if (cell.decisive.samples == 0) continue;
    links.push_back(cell.link_gb_per_s);
    shares.push_back(cell.decisive.*share);
  }
  if (links.empty()) return "-";
  const Crossing crossing = CrossingOf(links, shares);
  switch (crossing.kind) {
    case Crossing::Kind::kAt:
      return fmt::format("{:.2g}", crossing.link_gb_per_s);
    case Crossing::Kind::kBelow:
      return fmt::format("< {:g}", links.front());
    case Crossing::Kind::kAbove:
      return fmt::format("> {:g}", links.back());
  }
  return "";
}

// The links at which the prediction, the choice and the replay change sides, for one load and
// prompt.
struct RowCrossings {
  std::string predicted;
  std::string chosen;
  std::string replayed;
};

RowCrossings CrossingsOf(std::span<const CrossoverCell> row) {
  return {.predicted = CrossingText(row, &CrossoverShares::predicted),
          .chosen = CrossingText(row, &CrossoverShares::chosen),
          .replayed = CrossingText(row, &CrossoverShares::replayed)};
}

// A table per load: a row per prompt, a column per link.
std::string TableOf(const CrossoverPlan& plan, const std::vector<CrossoverCell>& cells, size_t load,
                    const std::string& title,
                    const std::function<double(const CrossoverCell&)>& of) {
  std::string table = fmt::format("\n{}\n\n| prompt |", title);
  std::string rule = "\n|---|";
  for (const double link : plan.links_gb_per_s) {
    table += fmt::format(" {:g} GB/s |", link);
    rule += "---|";
  }
  table += rule + "\n";
  for (size_t prompt = 0; prompt < plan.prompts.size(); ++prompt) {
    table += fmt::format("| {} |", plan.prompts[prompt]);
    for (const CrossoverCell& cell : RowOf(plan, cells, load, prompt)) {
      table += fmt::format(" {:.1f} |", of(cell));
    }
    table += "\n";
  }
  return table;
}

std::string CrossingsTable(const CrossoverPlan& plan, const std::vector<CrossoverCell>& cells) {
  std::string table =
      "\n## Where the routes change\n\nGB/s of the link at which half of the samples are on each "
      "side, of those whose two costs differ by more than 5%.\n\n| load | prompt | predicted | "
      "chosen | replayed |\n|---|---|---|---|---|\n";
  for (size_t load = 0; load < plan.loads.size(); ++load) {
    for (size_t prompt = 0; prompt < plan.prompts.size(); ++prompt) {
      const RowCrossings at = CrossingsOf(RowOf(plan, cells, load, prompt));
      table += fmt::format("| {:g} | {} | {} | {} | {} |\n", plan.loads[load], plan.prompts[prompt],
                           at.predicted, at.chosen, at.replayed);
    }
  }
  return table;
}

std::string HeadingOf(const CrossoverPlan& plan, const std::vector<CrossoverCell>& cells) {
  double difference = 0;
  int64_t samples = 0;
  int64_t decisive = 0;
  for (const CrossoverCell& cell : cells) {
    difference = std::max(difference, cell.replay_difference);
    samples += static_cast<int64_t>(cell.samples.size());
    decisive += cell.decisive.samples;
  }
  return fmt::format(
      "**Simulated: no figure is a measurement of a real device.** One unified, one prefill and "
      "one "
      "decode worker with {}, policy {}. At least {} requests per cell, and those of 5 s; outputs "
      "of {} tokens, seed {}. Load "
      "1 is the rate at which the prompts would keep one worker busy all the time.\n\n{} requests "
      "were replayed with all others on their routes: on the other route, and left out. A request "
      "costs its own time to the end and what all others lose by it; the time before the first "
      "token weighs three times. The chosen routes cost "
      "**{:.2f}%** more than the better ones. For {} of the requests the two costs differ by more "
      "than 5%, and for {:.0f}% of these the better route was predicted. A replay of the routes "
      "that were taken differs from "
      "the run by {:.2g}% of these times of all requests at most.\n",
      plan.machines.file, plan.policy, plan.requests, plan.output_tokens, plan.seed, samples,
      RegretPercent(cells), decisive, ForeseenPercent(cells), 100 * difference);
}

loadgen::HeatMap EmptyMap(const CrossoverPlan& plan, const std::string& title) {
  loadgen::HeatMap map{.title = title,
                       .x_label = "link (GB/s)",
                       .y_label = "prompt tokens",
                       .columns = {},
                       .rows = {},
                       .cells = {}};
  for (const double link : plan.links_gb_per_s) map.columns.push_back(fmt::format("{:g}", link));
  for (const int32_t prompt : plan.prompts) map.rows.push_back(fmt::format("{}", prompt));
  return map;
}

std::string DetailOf(const CrossoverCell& cell) {
  return fmt::format(
      "{:.1f} req/s; disaggregated: {:.0f}% chosen, {:.0f}% predicted; of {} samples that matter "
      "{:.0f}% replayed; predicted advantage {:.1f} ms; regret {:.2f}%",
      cell.rate, 100 * cell.chosen, 100 * cell.predicted, cell.decisive.samples,
      100 * cell.decisive.replayed, cell.median_advantage_ms, RegretPercentOf(cell));
}

std::string MapsOf(const CrossoverPlan& plan, const std::vector<CrossoverCell>& cells,
                   size_t load) {
  constexpr double kWorstRegret = 20;  // percent; full red
  const std::string at = fmt::format("load {:g}", plan.loads[load]);
  loadgen::HeatMap chosen = EmptyMap(plan, at + ": requests on the disaggregated route");
  chosen.legend = "blue: disaggregated, red: unified";
  loadgen::HeatMap regret = EmptyMap(plan, at + ": regret against the oracle");
  regret.legend = "white: none, red: 20% and more; grey: not replayed";
  for (size_t prompt = 0; prompt < plan.prompts.size(); ++prompt) {
    for (const CrossoverCell& cell : RowOf(plan, cells, load, prompt)) {
      const double percent = RegretPercentOf(cell);
      const std::string detail = DetailOf(cell);
      chosen.cells.push_back(
          {fmt::format("{:.0f}%", 100 * cell.chosen), 2 * cell.chosen - 1, detail});
      regret.cells.push_back({cell.samples.empty() ? "" : fmt::format("{:.1f}%", percent),
                              cell.samples.empty() ? std::numeric_limits<double>::quiet_NaN()
                                                   : -percent / kWorstRegret,
                              detail});
    }
  }
  return RenderHeatMap(chosen) + RenderHeatMap(regret);
}

// Costs as [own, others]; what is not known or infinite is null.
Json SampleJson(const CrossoverSample& sample) {
  const auto rounded = [](double ms) { return std::round(ms * 10) / 10; };
  const auto replayed = [&](const ReplayedCost& cost) {
    return Json::array({rounded(cost.own_ms), rounded(cost.others_ms)});
  };
  const auto predicted = [&](const std::optional<double>& ms) {
    return ms ? Json(rounded(*ms)) : Json();
  };
  return {{"request", sample.request},
          {"disaggregated", sample.taken == v1::ROUTE_DISAGGREGATED},
          {"predicted_ms", Json::array({predicted(sample.predicted_unified_ms),
                                        predicted(sample.predicted_disaggregated_ms)})},
          {"unified_ms", replayed(sample.replayed.unified)},
          {"disaggregated_ms", replayed(sample.replayed.disaggregated)}};
}

Json CellJson(const CrossoverCell& cell) {
  Json json = {{"load", cell.load},
               {"prompt", cell.prompt},
               {"link_gb_per_s", cell.link_gb_per_s},
               {"rate", cell.rate},
               {"requests", cell.requests},
               {"chosen", cell.chosen},
               {"predicted", cell.predicted},
               {"median_advantage_ms", cell.median_advantage_ms},
               {"decisive",
                {{"samples", cell.decisive.samples},
                 {"predicted", cell.decisive.predicted},
                 {"chosen", cell.decisive.chosen},
                 {"replayed", cell.decisive.replayed},
                 {"foreseen", cell.decisive.foreseen}}},
               {"regret_percent", RegretPercentOf(cell)},
               {"oracle_ms", cell.oracle_ms},
               {"replay_difference", cell.replay_difference},
               {"samples", Json::array()}};
  for (const CrossoverSample& sample : cell.samples) json["samples"].push_back(SampleJson(sample));
  return json;
}

}  // namespace

std::string LineOf(const CrossoverCell& cell) {
  return fmt::format(
      "load {:g}, prompt {}, {:g} GB/s ({:.1f} req/s): {:.0f}% disaggregated, predicted {:.0f}%, "
      "regret {:.2f}%; {} of {} samples matter, {:.0f}% replayed there, {:.0f}% foreseen",
      cell.load, cell.prompt, cell.link_gb_per_s, cell.rate, 100 * cell.chosen,
      100 * cell.predicted, RegretPercentOf(cell), cell.decisive.samples, cell.samples.size(),
      100 * cell.decisive.replayed, 100 * cell.decisive.foreseen);
}

Json CrossoverJson(const CrossoverPlan& plan, const std::vector<CrossoverCell>& cells) {
  Json json = {{"simulated", true},
               {"parameter_file", plan.machines.file},
               {"policy", plan.policy},
               {"links_gb_per_s", plan.links_gb_per_s},
               {"prompts", plan.prompts},
               {"loads", plan.loads},
               {"output_tokens", plan.output_tokens},
               {"requests", plan.requests},
               {"seed", plan.seed},
               {"regret_percent", RegretPercent(cells)},
               {"foreseen_percent", ForeseenPercent(cells)}};
  for (size_t load = 0; load < plan.loads.size(); ++load) {
    for (size_t prompt = 0; prompt < plan.prompts.size(); ++prompt) {
      const RowCrossings at = CrossingsOf(RowOf(plan, cells, load, prompt));
      json["crossings_gb_per_s"].push_back({{"load", plan.loads[load]},
                                            {"prompt", plan.prompts[prompt]},
                                            {"predicted", at.predicted},
                                            {"chosen", at.chosen},
                                            {"replayed", at.replayed}});
    }
  }
  for (const CrossoverCell& cell : cells) json["cells"].push_back(CellJson(cell));
  return json;
}

std::string CrossoverMarkdown(const CrossoverPlan& plan, const std::vector<CrossoverCell>& cells) {
  std::string text = "# Crossover\n\n" + HeadingOf(plan, cells) + CrossingsTable(plan, cells);
  for (size_t load = 0; load < plan.loads.size(); ++load) {
    text += fmt::format("\n## Load {:g}\n", plan.loads[load]);
    text += TableOf(plan, cells, load, "Requests on the disaggregated route (%)",
                    [](const CrossoverCell& cell) { return 100 * cell.chosen; });
    if (plan.samples > 0) {
      text += TableOf(plan, cells, load, "Regret against the oracle (%)", RegretPercentOf);
    }
  }
  return text;
}

std::string CrossoverHtml(const CrossoverPlan& plan, const std::vector<CrossoverCell>& cells) {
  std::string maps;
  for (size_t load = 0; load < plan.loads.size(); ++load) maps += MapsOf(plan, cells, load);
  return loadgen::ReportPage("Crossover", maps, CrossoverMarkdown(plan, cells));
}

}  // namespace tandem::simulator
