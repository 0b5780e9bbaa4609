#include "bench/serving/sweep_report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <iterator>

#include "bench/serving/report_page.h"
#include "bench/serving/svg_plot.h"
#include "bench/serving/sweep_comparison.h"
#include "bench/serving/sweep_standings.h"
#include "fmt/format.h"
#include "fmt/ranges.h"

namespace tandem::loadgen {
namespace {

using Json = nlohmann::ordered_json;

// A quantity that is reported of every point.
struct Quantity {
  std::string_view title;
  std::string_view name;
  std::string_view within = {};
  double factor = 1;
  int digits = 1;
};
constexpr Quantity kGoodput = {"Goodput (req/s)", "request_goodput", "", 1, 3};
constexpr Quantity kGood = {"Good requests (%)", "slo_attainment", "share", 100};
constexpr Quantity kQuantities[] = {
    kGoodput,
    kGood,
    {"TTFT from the arrival, p50 (ms)", "median_scheduled_ttft_ms"},
    {"TTFT from the arrival, p99 (ms)", "p99_scheduled_ttft_ms"},
    {"TPOT, p99 (ms)", "p99_tpot_ms"},
    {"Output tokens/s", "output_throughput"},
};

SeedMean MeanOf(const SweepResults& results, const std::string& workload, double rate,
                const std::string& strategy, const Quantity& quantity) {
  std::vector<double> samples;
  for (const auto& [point, result] : results) {
    if (point.workload != workload || point.rate != rate || point.strategy.name != strategy) {
      continue;
    }
    samples.push_back(NumberIn(result, quantity.name, quantity.within) * quantity.factor);
  }
  return MeanOverSeeds(samples);
}

std::string Cell(const SeedMean& mean, int digits) {
  if (mean.half_width == 0) return fmt::format("{:.{}f}", mean.mean, digits);
  return fmt::format("{:.{}f} ± {:.{}f}", mean.mean, digits, mean.half_width, digits);
}

std::string Table(const SweepPlan& plan, const SweepResults& results, const std::string& workload,
                  const Quantity& quantity) {
  std::string table = fmt::format("\n{}\n\n| req/s |", quantity.title);
  std::string rule = "\n|---|";
  for (const SweepStrategy& strategy : plan.strategies) {
    table += fmt::format(" {} |", strategy.name);
    rule += "---|";
  }
  table += rule + "\n";
  for (const double rate : RatesOf(plan, workload)) {
    table += fmt::format("| {:g} |", rate);
    for (const SweepStrategy& strategy : plan.strategies) {
      const SeedMean mean = MeanOf(results, workload, rate, strategy.name, quantity);
      table += fmt::format(" {} |", Cell(mean, quantity.digits));
    }
    table += "\n";
  }
  return table;
}

// Each strategy against the best of the others at the same rate.
std::string Margins(const SweepPlan& plan, const SweepResults& results) {
  if (plan.strategies.size() < 2) return {};
  std::string table =
      "\n## Good requests relative to the best other strategy\n\nThe lowest and the highest over "
      "the "
      "rates.\n\n| workload |";
  std::string rule = "\n|---|";
  for (const SweepStrategy& strategy : plan.strategies) {
    table += fmt::format(" {} |", strategy.name);
    rule += "---|";
  }
  table += rule + "\n";
  for (const std::string& workload : plan.workloads) {
    table += fmt::format("| {} |", workload);
    for (const SweepStrategy& one : plan.strategies) {
      double low = INFINITY;
      double high = -INFINITY;
      for (const double rate : RatesOf(plan, workload)) {
        double best = 0;
        for (const SweepStrategy& other : plan.strategies) {
          if (other.name == one.name) continue;
          best = std::max(best, MeanOf(results, workload, rate, other.name, kGood).mean);
        }
        if (best == 0) continue;
        const double own = MeanOf(results, workload, rate, one.name, kGood).mean;
        low = std::min(low, 100 * (own / best - 1));
        high = std::max(high, 100 * (own / best - 1));
      }
      table += low > high ? " none good |" : fmt::format(" {:+.1f} to {:+.1f}% |", low, high);
    }
    table += "\n";
  }
  return table;
}

std::string ObjectivesText(const Objectives& objectives) {
  std::string text;
  const auto add = [&text](const char* name, const std::optional<double>& ms) {
    if (ms) text += fmt::format("{}{} {:g} ms", text.empty() ? "" : ", ", name, *ms);
  };
  add("TTFT", objectives.ttft);
  add("TPOT", objectives.tpot);
  add("end to end", objectives.e2e);
  return text;
}

std::string Heading(const SweepPlan& plan, const SweepResults& results) {
  double lag = 0;
  double faults = 0;
  for (const auto& [point, result] : results) {
    lag = std::max(lag, NumberIn(result, "generator_lag_ms", "p99"));
    faults += NumberIn(result, "failed");
  }
  std::string text = fmt::format(
      "{} strategies with {} workers each, at least {} requests per point, {} seeds{}. A request "
      "is good "
      "when it is complete, with {}. The largest p99 of the generator's own lag is {:.2f} ms; {:g} "
      "requests of all points failed. `{} {}`, version {}.\n",
      plan.strategies.size(), plan.strategies[0].workers(), plan.requests, plan.seeds.size(),
      plan.seeds.size() > 1 ? " (mean ± half of its 95% interval)" : "",
      ObjectivesText(plan.objectives), lag, faults, plan.command, fmt::join(plan.arguments, " "),
      plan.build);
  const bool simulated = std::any_of(results.begin(), results.end(), [](const SweepResult& one) {
    return one.result.value("simulated", false);
  });
  if (simulated) text += "\n**Simulated devices: no figure is a measurement of a real one.**\n";
  if (plan.requests < kHeadlineRequests) {
    text += fmt::format(
        "\n**Fewer than {} requests per point: differences of a few percent are "
        "noise.**\n",
        kHeadlineRequests);
  }
  return text;
}

Plot PlotOf(const SweepPlan& plan, const SweepResults& results, const std::string& workload,
            const Quantity& quantity) {
  static constexpr std::array<const char*, 10> kColors = {
      "#4477aa", "#ee6677", "#228833", "#ccbb44", "#66ccee",
      "#aa3377", "#bbbbbb", "#dd7711", "#222222", "#999933"};
  Plot plot{.title = fmt::format("{}: {}", workload, quantity.title),
            .x_label = "request rate (req/s)",
            .y_label = std::string(quantity.title),
            .series = {}};
  for (size_t i = 0; i < plan.strategies.size(); ++i) {
    const SweepStrategy& strategy = plan.strategies[i];
    PlotSeries series{strategy.name, kColors[i % kColors.size()], PlotSeries::Mark::kLine, {}};
    for (const double rate : RatesOf(plan, workload)) {
      series.points.push_back(
          {rate, MeanOf(results, workload, rate, strategy.name, quantity).mean});
    }
    std::sort(series.points.begin(), series.points.end(),
              [](const PlotPoint& a, const PlotPoint& b) { return a.x < b.x; });
    plot.series.push_back(std::move(series));
  }
  return plot;
}

}  // namespace

std::string SweepMarkdown(const SweepPlan& plan, const SweepResults& results) {
  std::string text = "# Sweep\n\n" + Heading(plan, results) +
                     StandingsMarkdown(StandingsOf(plan, results)) + Margins(plan, results);
  for (const std::string& workload : plan.workloads) {
    text += fmt::format("\n## {}\n", workload);
    for (const Quantity& quantity : kQuantities) text += Table(plan, results, workload, quantity);
  }
  return text;
}

std::string SweepHtml(const SweepPlan& plan, const SweepResults& results) {
  std::string plots;
  for (const std::string& workload : plan.workloads) {
    plots += fmt::format("<h2>{}</h2>\n", EscapeHtml(workload));
    for (const Quantity& quantity : kQuantities) {
      plots += RenderSvg(PlotOf(plan, results, workload, quantity));
    }
  }
  return ReportPage("Sweep", plots, SweepMarkdown(plan, results));
}

}  // namespace tandem::loadgen
