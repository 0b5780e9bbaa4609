#include "bench/serving/report_text.h"

#include <cmath>
#include <string_view>

#include "fmt/format.h"

namespace tandem::loadgen {
namespace {

constexpr int kWidth = 50;

std::string Rule(std::string_view title, char fill) {
  return fmt::format("{}\n", fill == '='
                                 ? fmt::format("{:=^{}}", fmt::format(" {} ", title), kWidth)
                                 : fmt::format("{:-^{}}", title, kWidth));
}

std::string Line(std::string_view name, double value) {
  return fmt::format("{:<40} {:<10.2f}\n", fmt::format("{}:", name), value);
}
std::string Line(std::string_view name, int64_t value) {
  return fmt::format("{:<40} {:<10}\n", fmt::format("{}:", name), value);
}
std::string Line(std::string_view name, const std::string& value) {
  return fmt::format("{:<40} {:<10}\n", fmt::format("{}:", name), value);
}

std::string Requests(const RunDescription& description, const Summary& summary) {
  const VerdictCounts& counts = summary.counts;
  std::string text = Line("Successful requests", counts.complete);
  text += Line("Failed requests", counts.not_complete());
  if (counts.not_complete() > 0) {
    text += Line("  of these with an error", counts.failed);
    text += Line("  of these truncated", counts.truncated);
    text += Line("  of these of a wrong length", counts.wrong_length);
  }
  if (counts.cancelled > 0) text += Line("Cancelled requests", counts.cancelled);
  if (description.max_concurrency > 0) {
    text += Line("Maximum request concurrency", int64_t{description.max_concurrency});
  }
  if (description.request_rate > 0 && std::isfinite(description.request_rate)) {
    text += Line("Request rate configured (RPS)", description.request_rate);
  }
  text += Line("Request rate achieved (RPS)", summary.achieved_rate);
  return text;
}

std::string Throughput(const Summary& summary) {
  std::string text = Line("Benchmark duration (s)", summary.duration_seconds);
  text += Line("Total input tokens", summary.input_tokens);
  text += Line("Total generated tokens", summary.output_tokens);
  text += Line("Request throughput (req/s)", summary.request_throughput);
  if (summary.goodput) {
    text += Line("Request goodput (req/s)", *summary.goodput);
    const ShareInterval& attained = summary.attainment;
    text += Line("SLO attainment (%)",
                 fmt::format("{:.2f} (95% within {:.1f} and {:.1f})", attained.share * 100,
                             attained.low * 100, attained.high * 100));
  }
  text += Line("Output token throughput (tok/s)", summary.output_throughput);
  text += Line("Peak output token throughput (tok/s)", summary.peak_output_throughput);
  text += Line("Peak concurrent requests", int64_t{summary.peak_concurrency});
  text += Line("Total token throughput (tok/s)", summary.total_throughput);
  if (summary.steady) {
    text += Rule("Steady window: warm-up end to last arrival", '-');
    text += Line("Window (s)", summary.steady->seconds);
    text += Line("Request throughput in it (req/s)", summary.steady->request_throughput);
    text += Line("Output token throughput in it (tok/s)", summary.steady->output_throughput);
  }
  return text;
}

std::string Section(const MetricSection& section, const ReportChoice& choice) {
  std::string text = Rule(section.title, '-');
  const auto line = [&](std::string_view what, double value) {
    text += Line(fmt::format("{} {} (ms)", what, section.short_name), value);
  };
  line("Mean", section.ms->Mean());
  line("Median", section.ms->Median());
  for (const double percent : choice.percentiles) {
    line("P" + PercentText(percent), section.ms->Percentile(percent));
  }
  line("Max", section.ms->Max());
  return text;
}

std::string TableRow(std::string_view name, const Distribution& ms) {
  return fmt::format("{:<16}{:>9.2f}{:>9.2f}{:>9.2f}{:>9.2f}{:>9.2f}{:>9.2f}{:>9.2f}\n", name,
                     ms.Mean(), ms.Median(), ms.Percentile(90), ms.Percentile(95),
                     ms.Percentile(99), ms.Percentile(99.9), ms.Max());
}

std::string TableHead(std::string_view name) {
  return fmt::format("{:<16}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}\n", name, "mean", "p50", "p90",
                     "p95", "p99", "p99.9", "max");
}

std::string Stages(const StageSummary& summary) {
  if (summary.stages.empty()) return {};
  std::string text = Rule("Server Stages", '-') + TableHead("ms");
  for (const NamedDistribution& stage : summary.stages) {
    text += TableRow(stage.name == "ttft" ? "= server TTFT" : stage.name, stage.ms);
  }
  text += TableRow("outside of it", summary.outside);
  text += Line("Requests whose stages do not add up", summary.not_adding_up);
  return text;
}

std::string Predictions(const std::vector<PredictionSummary>& predictions) {
  if (predictions.empty()) return {};
  std::string text = Rule("Predicted and Actual", '-');
  text += fmt::format("{:<8}{:>9}{:>14}{:>11}{:>12}{:>12}{:>13}\n", "", "requests", "predicted p50",
                      "actual p50", "error p50 %", "error p90 %", "within 20% %");
  for (const PredictionSummary& each : predictions) {
    text += fmt::format("{:<8}{:>9}{:>14.2f}{:>11.2f}{:>12.1f}{:>12.1f}{:>13.1f}\n", each.name,
                        each.error.count(), each.predicted_ms.Median(), each.actual_ms.Median(),
                        each.error.Median() * 100, each.error.Percentile(90) * 100,
                        each.share_within_20_percent * 100);
  }
  return text;
}

}  // namespace

std::string TextReport(const RunDescription& description, const Summary& summary,
                       const ReportChoice& choice) {
  std::string text = Rule("Serving Benchmark Result", '=');
  if (summary.simulated) text += Line("Measured on", "a simulated device, not a real one");
  text += Line("Arrivals", description.arrivals);
  text += Line("Schedule hash", description.schedule_hash);
  text += Requests(description, summary) + Throughput(summary);
  for (const MetricSection& section : SectionsOf(summary, choice)) {
    text += Section(section, choice);
  }
  text += Stages(summary.stages);
  text += Predictions(summary.predictions);
  text += Rule("Generator Lag (sent - due)", '-');
  text += Line("Median lag (ms)", summary.lag.Median());
  text += Line("P99 lag (ms)", summary.lag.Percentile(99));
  text += Line("Max lag (ms)", summary.lag.Max());
  return text + std::string(kWidth, '=') + "\n";
}

}  // namespace tandem::loadgen
