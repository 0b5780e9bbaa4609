#include "bench/serving/report.h"

#include <algorithm>
#include <utility>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/status.h"
#include "fmt/format.h"

namespace tandem::loadgen {

absl::StatusOr<ReportChoice> ParseReportChoice(const std::string& metrics,
                                               const std::string& percentiles) {
  ReportChoice choice;
  choice.metrics = absl::StrSplit(metrics, ',');
  for (const std::string& metric : choice.metrics) {
    if (metric != "ttft" && metric != "tpot" && metric != "itl" && metric != "e2el") {
      return InvalidArgument("--percentile-metrics={}: \"{}\" is none of ttft, tpot, itl and e2el",
                             metrics, metric);
    }
  }
  choice.percentiles.clear();
  for (const absl::string_view word : absl::StrSplit(percentiles, ',')) {
    double percent = 0;
    if (!absl::SimpleAtod(word, &percent) || !(percent > 0 && percent < 100)) {
      return InvalidArgument(
          "--metric-percentiles={}: \"{}\" is no number between 0 and 100 (both excluded)",
          percentiles, std::string(word));
    }
    choice.percentiles.push_back(percent);
  }
  return choice;
}

std::vector<MetricSection> SectionsOf(const Summary& summary, const ReportChoice& choice) {
  const LatencySummary& latency = summary.latency;
  const std::pair<std::string, std::vector<MetricSection>> all[] = {
      {"ttft",
       {{"ttft", "Time to First Token", "TTFT", &latency.ttft},
        {"scheduled_ttft", "Time to First Token from the Arrival", "arrival TTFT",
         &latency.scheduled_ttft}}},
      {"tpot", {{"tpot", "Time per Output Token (excl. 1st token)", "TPOT", &latency.tpot}}},
      {"itl",
       {{"itl", "Inter-token Latency", "ITL", &latency.itl},
        {"icl", "Inter-chunk Latency", "ICL", &latency.chunk_gap}}},
      {"e2el",
       {{"e2el", "End-to-end Latency", "E2EL", &latency.e2e},
        {"scheduled_e2el", "End-to-end Latency from the Arrival", "arrival E2EL",
         &latency.scheduled_e2e},
        {"client_queue_time", "Client-side Queueing", "Client Queue Time",
         &latency.client_queue}}}};
  std::vector<MetricSection> sections;
  for (const auto& [metric, group] : all) {
    if (std::find(choice.metrics.begin(), choice.metrics.end(), metric) == choice.metrics.end()) {
      continue;
    }
    for (const MetricSection& section : group) {
      const bool one_per_chunk =
          section.key == "icl" && latency.chunk_gap.count() == latency.itl.count();
      const bool no_queue = section.key == "client_queue_time" && section.ms->Max() == 0;
      if (!section.ms->empty() && !one_per_chunk && !no_queue) sections.push_back(section);
    }
  }
  return sections;
}

std::string PercentText(double percent) { return fmt::format("{:g}", percent); }

}  // namespace tandem::loadgen
