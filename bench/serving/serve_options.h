#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "bench/serving/arrivals.h"
#include "bench/serving/rate_search.h"
#include "bench/serving/report.h"
#include "bench/serving/runner.h"
#include "bench/serving/summary.h"
#include "bench/serving/workload.h"

namespace tandem::loadgen {

// Where results are written besides stdout. Empty: nowhere.
struct OutputFiles {
  std::string json;
  bool details = false;  // JSON has an element per request, too
  std::string requests;  // JSONL, a line per request
  std::string html;
};

struct ServeBenchOptions {
  WorkloadOptions workload;
  std::optional<ArrivalOptions> arrivals;  // absent: the times of the trace
  RunOptions run;
  SummaryOptions summary;
  ReportChoice report;
  std::optional<RateSearchOptions> search;  // for the rate, instead of one run
  OutputFiles files;
  uint64_t seed = 0;
  int32_t num_warmups = 0;  // requests that are sent, and answered, before the run
  Duration patience{};      // for a server that is not ready yet
  bool dry_run = false;     // print the schedule's hash and sizes alone
  std::string label;
  std::vector<std::string> metadata;  // KEY=VALUE
};

}  // namespace tandem::loadgen
