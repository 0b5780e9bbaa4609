#include "server/eval/eval_report.h"

#include <algorithm>
#include <set>
#include <string_view>
#include <utility>

#include "base/json.h"
#include "bench/serving/report_page.h"
#include "bench/serving/svg_plot.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"
#include "server/commands/generation.h"

namespace tandem {
namespace {

using Json = nlohmann::ordered_json;
using loadgen::Axis;
using loadgen::Plot;
using loadgen::PlotSeries;

constexpr std::string_view kAboutKl =
    "KL is the divergence over the baseline's most probable tokens and one bucket for the rest, in "
    "nats per token: that over the whole vocabulary is at least as large.";
constexpr char kColor[] = "#4477aa";
constexpr size_t kNameColumns = 28;

std::string NumberText(const Measure& measure, std::optional<double> value) {
  return value ? fmt::format("{:.{}f}", *value, measure.digits) : "-";
}

std::string ServedText(const ServedAs& served) {
  std::string text = fmt::format("route {} of {}", Name(served.route), served.router);
  if (!served.quality.empty()) text += fmt::format(", quality {}", served.quality);
  if (!served.eviction.empty()) text += fmt::format(", eviction {}", served.eviction);
  return text;
}

Json ServedJson(const ServedAs& served) {
  return {{"router", served.router},
          {"route", Name(served.route)},
          {"quality", served.quality},
          {"eviction", served.eviction}};
}

std::string PlanText(const EvalSubject& subject) {
  const int32_t prompt_tokens = subject.plan.prompt_tokens;
  if (!subject.planted) {
    return fmt::format("{} + {} tokens", prompt_tokens, subject.plan.output_tokens);
  }
  const bool known = *subject.planted == PlantedQuestion::kKnown;
  return fmt::format("{} tokens with a planted fact, asked for {} the prompt", prompt_tokens,
                     known ? "at the end of" : "after");
}

// The answers to planted facts are not equally long, so they have no number of tokens.
Json PlanJson(const EvalSubject& subject) {
  Json json = {{"prompt_tokens", subject.plan.prompt_tokens}};
  if (!subject.planted) {
    json["output_tokens"] = subject.plan.output_tokens;
  } else {
    json["planted"] = *subject.planted == PlantedQuestion::kKnown ? "known" : "later";
  }
  return json;
}

std::string Heading(const EvalResult& result) {
  const EvalSubject& subject = result.subject;
  return fmt::format("{}: {} against {}, {} windows of {}, {} most probable tokens", subject.model,
                     ServedText(subject.tested), ServedText(subject.baseline),
                     result.windows.size(), PlanText(subject), subject.num_logprobs);
}

std::string TotalsTable(const EvalResult& result) {
  std::string table = fmt::format("{:<32}{:>16}{:>16}{:>16}\n", "", "mean", "std. error", "worst");
  for (const Measure& measure : MeasuresOf(result.subject)) {
    const std::optional<MeasureTotal> total = TotalOf(measure, result.windows);
    if (!total) continue;
    table +=
        fmt::format("{:<32}{:>16}{:>16}{:>16}  {}\n", measure.title,
                    NumberText(measure, total->mean), NumberText(measure, total->standard_error),
                    NumberText(measure, total->worst), result.windows[total->worst_window].name);
  }
  return table;
}

// Lines below the tables: the codecs that carried KV, and what else a reader must know about the
// numbers.
std::string Notes(const EvalResult& result) {
  std::set<std::string> codecs;
  bool kv_moved = false;
  for (const WindowResult& window : result.windows) {
    kv_moved = kv_moved || window.kv.wire() > 0;
    if (!window.kv.codec().empty()) codecs.insert(window.kv.codec());
  }
  std::string notes = fmt::format("{}\n", kAboutKl);
  if (!kv_moved) notes += "The tested requests moved no KV.\n";
  for (const std::string& codec : codecs) notes += fmt::format("KV moved with codec {}.\n", codec);
  return notes;
}

// The end of a long name says which window it is.
std::string ShortName(const std::string& name) {
  if (name.size() <= kNameColumns) return name;
  return "..." + name.substr(name.size() - kNameColumns + 3);
}

std::string WindowsTable(const EvalResult& result) {
  std::string table = fmt::format("{:<{}}", "window", kNameColumns);
  for (const Measure& measure : MeasuresOf(result.subject)) {
    table += fmt::format("{:>13}", measure.column);
  }
  for (const WindowResult& window : result.windows) {
    table += fmt::format("\n{:<{}}", ShortName(window.name), kNameColumns);
    for (const Measure& measure : MeasuresOf(result.subject)) {
      table += fmt::format("{:>13}", NumberText(measure, measure.of(window)));
    }
  }
  return table + "\n";
}

Json ValueJson(std::optional<double> value) { return value ? Json(*value) : Json(nullptr); }

Json WindowJson(const EvalSubject& subject, const WindowResult& window) {
  Json json = {{"name", window.name}};
  for (const Measure& measure : MeasuresOf(subject)) {
    json[std::string(measure.key)] = ValueJson(measure.of(window));
  }
  json["baseline_route"] = Name(window.baseline_route);
  json["route"] = Name(window.route);
  json["kv_codec"] = window.kv.codec();
  return json;
}

Json TotalsJson(const EvalResult& result) {
  Json totals = Json::object();
  for (const Measure& measure : MeasuresOf(result.subject)) {
    const std::optional<MeasureTotal> total = TotalOf(measure, result.windows);
    if (!total) continue;
    totals[std::string(measure.key)] = {{"mean", total->mean},
                                        {"standard_error", ValueJson(total->standard_error)},
                                        {"worst", total->worst},
                                        {"worst_window", result.windows[total->worst_window].name}};
  }
  return totals;
}

// KL divergence against the compression of KV, on a logarithmic axis if all divergences are above
// zero.
Plot KlPlot(const EvalResult& result) {
  PlotSeries series{
      .name = "windows", .color = kColor, .mark = PlotSeries::Mark::kDots, .points = {}};
  for (const WindowResult& window : result.windows) {
    if (window.kv.wire() == 0) continue;
    series.points.push_back(
        {static_cast<double>(window.kv.raw()) / window.kv.wire(), window.change.kl_nats});
  }
  const bool above_zero =
      std::ranges::all_of(series.points, [](const loadgen::PlotPoint& one) { return one.y > 0; });
  return {.title = "What a smaller transfer costs",
          .x_label = "KV bytes / bytes on the wire",
          .y_label = "KL, at least (nats per token)",
          .y_axis = above_zero ? Axis::kLogarithmic : Axis::kLinear,
          .series = {std::move(series)}};
}

Plot PerplexityPlot(const EvalResult& result) {
  PlotSeries series{
      .name = "windows", .color = kColor, .mark = PlotSeries::Mark::kDots, .points = {}};
  for (const WindowResult& window : result.windows) {
    series.points.push_back({window.change.baseline_perplexity, window.change.perplexity});
  }
  return {.title = "Perplexity",
          .x_label = "baseline",
          .y_label = "tested",
          .x_axis = Axis::kLogarithmic,
          .y_axis = Axis::kLogarithmic,
          .series = {std::move(series)},
          .diagonal = true};
}

}  // namespace

std::string EvalTables(const EvalResult& result) {
  return fmt::format("{}\n\n{}\n{}\n{}", Heading(result), TotalsTable(result), WindowsTable(result),
                     Notes(result));
}

std::string EvalJson(const EvalResult& result) {
  const EvalSubject& subject = result.subject;
  Json windows = Json::array();
  for (const WindowResult& window : result.windows) windows.push_back(WindowJson(subject, window));
  Json json = {{"format", "tandem-eval"},
               {"model", subject.model},
               {"baseline", ServedJson(subject.baseline)},
               {"tested", ServedJson(subject.tested)}};
  json.update(PlanJson(subject));
  json["logprobs"] = subject.num_logprobs;
  json["about_kl"] = kAboutKl;
  json["totals"] = TotalsJson(result);
  json["windows"] = std::move(windows);
  return JsonText(json, 1) + "\n";
}

std::string EvalPage(const EvalResult& result) {
  return loadgen::ReportPage(
      "Evaluation of " + result.subject.model,
      loadgen::RenderSvg(KlPlot(result)) + loadgen::RenderSvg(PerplexityPlot(result)),
      EvalTables(result));
}

}  // namespace tandem
