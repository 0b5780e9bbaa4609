#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "bench/serving/report.h"
#include "bench/serving/schedule.h"
#include "bench/serving/serve_options.h"
#include "bench/serving/summary.h"
#include "nlohmann/json_fwd.hpp"

namespace tandem::loadgen {

// One run and what is said about it.
struct Outcome {
  RunDescription description;
  RunResult run;
  Summary summary;
};

// What a report has besides that of `tandem bench serve`.
struct ReportExtras {
  std::string heading;  // lines before the report
  std::string text;     // lines after it
  std::function<void(nlohmann::ordered_json&)> add_to_json;
  bool json_on_stdout = false;  // in the place of the text
};

// Whether each request is due when a slot is free.
bool IsClosedLoop(const ServeBenchOptions& options);

// INVALID_ARGUMENT when the warm-up outlasts the schedule, so that no request would be measured.
absl::Status CheckWarmUp(const ServeBenchOptions& options, const Schedule& schedule);

RunDescription Describe(const ServeBenchOptions& options, std::string_view backend,
                        const std::string& model, const Schedule& schedule);

// One line on stdout: the hash of the schedule and its sizes.
void PrintSchedule(const ServeBenchOptions& options, const Schedule& schedule);

// Prints the report and writes the files that were asked for. INTERNAL when a file cannot be
// written, UNAVAILABLE when not one request was complete.
absl::Status Publish(const ServeBenchOptions& options, const Outcome& outcome,
                     const std::vector<RateProbe>& probes, const ReportExtras& extras = {});

}  // namespace tandem::loadgen
