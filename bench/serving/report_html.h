#pragma once

#include <string>
#include <vector>

#include "bench/serving/report.h"
#include "bench/serving/runner.h"

namespace tandem::loadgen {

// What the HTML page shows of one benchmark. All must outlive the call.
struct HtmlInput {
  const RunDescription& description;
  const RunResult& run;
  const SummaryOptions& options;
  const Summary& summary;
  const ReportChoice& choice;
  const std::vector<RateProbe>& probes;  // of a rate search; empty without one
};

// A page that needs no other file and no script: the text report and plots of latency over time,
// cumulative distributions, load over time, server stages, and where there are any, predictions and
// the rate search.
std::string HtmlReport(const HtmlInput& input);

}  // namespace tandem::loadgen
