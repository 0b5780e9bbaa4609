#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/serving/summary.h"

namespace tandem::loadgen {

// What a run was asked to do, as reports say it.
struct RunDescription {
  std::string backend;
  std::string model;
  std::string label;
  std::string arrivals;     // "poisson 8.00 req/s", "trace mooncake"
  double request_rate = 0;  // requests/s; infinity where all arrive at once, 0 of a trace
  double burstiness = 1;
  int32_t max_concurrency = 0;  // 0: none
  int64_t num_prompts = 0;
  uint64_t seed = 0;
  std::string schedule_hash;
  double warmup_seconds = 0;
  Objectives objectives;
  std::vector<std::string> metadata;  // KEY=VALUE
};

// One run of a search for the highest rate.
struct RateProbe {
  double rate = 0;  // requests/s
  ShareInterval attainment;
  double goodput = 0;  // good requests/s
};

// Which of the latencies are reported, and how.
struct ReportChoice {
  std::vector<std::string> metrics = {"ttft", "tpot", "itl", "e2el"};
  std::vector<double> percentiles = {90, 95, 99, 99.9};
};
// INVALID_ARGUMENT for an unknown metric and a percentile outside of (0, 100).
absl::StatusOr<ReportChoice> ParseReportChoice(const std::string& metrics,
                                               const std::string& percentiles);

// One kind of latency in a report: "ttft", "Time to First Token", "TTFT".
struct MetricSection {
  std::string key;
  std::string title;
  std::string short_name;
  const Distribution* ms = nullptr;
};
// The sections of the chosen metrics that have samples. TTFT and end-to-end latency come twice:
// from the send and from the scheduled arrival.
std::vector<MetricSection> SectionsOf(const Summary& summary, const ReportChoice& choice);

// "99", "99.9"
std::string PercentText(double percent);

}  // namespace tandem::loadgen
