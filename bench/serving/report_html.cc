#include "bench/serving/report_html.h"

#include <algorithm>
#include <map>
#include <utility>

#include "bench/serving/report_text.h"
#include "bench/serving/svg_plot.h"
#include "fmt/format.h"

namespace tandem::loadgen {
namespace {

using Mark = PlotSeries::Mark;

constexpr char kBlue[] = "#4477aa";
constexpr char kRed[] = "#cc3344";
constexpr char kGreen[] = "#228833";
constexpr char kGrey[] = "#999999";

// Series without points are left out.
Plot WithoutEmpty(Plot plot) {
  std::erase_if(plot.series, [](const PlotSeries& series) { return series.points.empty(); });
  return plot;
}

Plot LatencyOverTime(const HtmlInput& input) {
  const bool judged = input.options.objectives.any();
  PlotSeries good{judged ? "good" : "complete", kBlue, Mark::kDots, {}};
  PlotSeries late{"complete, over an objective", "#dd9922", Mark::kDots, {}};
  PlotSeries bad{"not complete (at 0)", kRed, Mark::kDots, {}};
  PlotSeries unmeasured{"warm-up", kGrey, Mark::kDots, {}};
  for (const RequestRecord& record : input.run.records) {
    const double arrival = ToSeconds(record.scheduled);
    const RequestLatency latency = LatencyOf(record);
    const Verdict verdict = Judge(record, input.options.ignore_eos);
    if (verdict == Verdict::kCancelled) continue;
    if (verdict != Verdict::kComplete) {
      bad.points.push_back({arrival, 0});
    } else if (record.scheduled < input.options.warmup) {
      unmeasured.points.push_back({arrival, *latency.scheduled_ttft});
    } else {
      PlotSeries& series = !judged || IsGood(record, input.options) ? good : late;
      series.points.push_back({arrival, *latency.scheduled_ttft});
    }
  }
  return WithoutEmpty({.title = "Time to first token by arrival",
                       .x_label = "scheduled arrival (s)",
                       .y_label = "TTFT from the arrival (ms)",
                       .series = {good, late, bad, unmeasured}});
}

PlotSeries Cumulative(const std::string& name, const char* color, const Distribution& ms) {
  PlotSeries series{name, color, Mark::kLine, {}};
  const auto count = static_cast<double>(ms.count());
  for (size_t i = 0; i < ms.count(); ++i) {
    series.points.push_back({ms.sorted()[i], static_cast<double>(i + 1) / count * 100});
  }
  return series;
}

Plot CumulativePlot(const std::string& title, std::vector<PlotSeries> series) {
  return WithoutEmpty({.title = title,
                       .x_label = "ms",
                       .y_label = "% of the samples",
                       .series = std::move(series)});
}

Plot UnderWay(const RunResult& run) {
  std::map<Duration, int> changes;
  for (const RequestRecord& record : run.records) {
    ++changes[record.sent];
    --changes[record.ended];
  }
  PlotSeries series{"under way", kBlue, Mark::kLine, {}};
  int now = 0;
  for (const auto& [at, change] : changes) {
    series.points.push_back({ToSeconds(at), static_cast<double>(now)});
    now += change;
    series.points.push_back({ToSeconds(at), static_cast<double>(now)});
  }
  return WithoutEmpty({.title = "Requests under way",
                       .x_label = "time (s)",
                       .y_label = "requests",
                       .series = {series}});
}

Plot TokenRate(const RunResult& run) {
  constexpr int kBins = 100;
  const double width = std::max(ToSeconds(run.length) / kBins, 1e-6);
  std::vector<double> tokens(kBins + 1);
  for (const RequestRecord& record : run.records) {
    for (const ChunkArrival& chunk : record.chunks) {
      const auto bin = static_cast<size_t>(ToSeconds(chunk.at) / width);
      tokens[std::min<size_t>(bin, kBins)] += chunk.tokens;
    }
  }
  PlotSeries series{"output tokens/s", kGreen, Mark::kLine, {}};
  for (int i = 0; i < kBins; ++i) series.points.push_back({(i + 0.5) * width, tokens[i] / width});
  return {.title = "Output token throughput",
          .x_label = "time (s)",
          .y_label = "tokens/s",
          .series = {series}};
}

std::string StageBar(const StageSummary& stages) {
  std::vector<BarPart> parts;
  for (const NamedDistribution& stage : stages.stages) {
    if (stage.name == "ttft") continue;
    parts.push_back({std::string(stage.name), std::max(stage.ms.Mean(), 0.0)});
  }
  parts.push_back({"outside of the server", std::max(stages.outside.Mean(), 0.0)});
  return RenderBar("Mean time to first token by stage", parts, "ms");
}

Plot PredictedTtft(const RunResult& run, bool ignore_eos) {
  PlotSeries series{"requests", kBlue, Mark::kDots, {}};
  for (const RequestRecord& record : run.records) {
    const auto ttft = LatencyOf(record).ttft;
    if (Judge(record, ignore_eos) != Verdict::kComplete || !record.end.predicted) continue;
    if (record.end.predicted->ttft && ttft) {
      series.points.push_back({*ttft, *record.end.predicted->ttft});
    }
  }
  return WithoutEmpty({.title = "Predicted and actual time to first token",
                       .x_label = "actual (ms)",
                       .y_label = "predicted (ms)",
                       .series = {series},
                       .diagonal = true});
}

Plot SearchPlot(const std::vector<RateProbe>& probes) {
  PlotSeries shares{"good requests", kBlue, Mark::kDots, {}};
  for (const RateProbe& probe : probes) {
    shares.points.push_back({probe.rate, probe.attainment.share * 100});
  }
  return {.title = "Rate search",
          .x_label = "request rate (req/s)",
          .y_label = "good requests (%)",
          .series = {shares}};
}

std::string Plots(const HtmlInput& input) {
  const LatencySummary& latency = input.summary.latency;
  std::string html = RenderSvg(LatencyOverTime(input));
  html += RenderSvg(
      CumulativePlot("Cumulative distribution of TTFT and E2EL",
                     {Cumulative("TTFT from the arrival", kBlue, latency.scheduled_ttft),
                      Cumulative("E2EL from the arrival", kGreen, latency.scheduled_e2e)}));
  html += RenderSvg(CumulativePlot(
      "Cumulative distribution of TPOT and ITL",
      {Cumulative("TPOT", kBlue, latency.tpot), Cumulative("ITL", kGreen, latency.itl)}));
  html += RenderSvg(UnderWay(input.run));
  html += RenderSvg(TokenRate(input.run));
  if (!input.summary.stages.stages.empty()) html += StageBar(input.summary.stages);
  if (!input.summary.predictions.empty()) {
    html += RenderSvg(PredictedTtft(input.run, input.options.ignore_eos));
  }
  if (!input.probes.empty()) html += RenderSvg(SearchPlot(input.probes));
  return html;
}

}  // namespace

std::string HtmlReport(const HtmlInput& input) {
  constexpr std::string_view kStyle =
      "body{font:14px sans-serif;margin:24px;color:#222}svg{margin:8px;background:#fff}"
      "svg text{font:11px sans-serif;fill:#333}svg .title{font-weight:bold}"
      "pre{background:#f6f6f6;padding:12px;overflow:auto}";
  const std::string title =
      EscapeHtml(fmt::format("{} - {}", input.description.label, input.description.model));
  return fmt::format(
      "<!DOCTYPE html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{}</title>\n"
      "<style>{}</style></head><body>\n<h1>Serving benchmark: {}</h1>\n<div>\n{}</div>\n"
      "<pre>{}</pre>\n</body></html>\n",
      title, kStyle, title, Plots(input),
      EscapeHtml(TextReport(input.description, input.summary, input.choice)));
}

}  // namespace tandem::loadgen
