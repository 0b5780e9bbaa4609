#pragma once

#include <string>
#include <vector>

#include "bench/serving/report.h"
#include "nlohmann/json_fwd.hpp"

namespace tandem::loadgen {

// The result with the keys that `vllm bench serve --save-result` writes, and more. Latencies end in
// _ms; every kind has mean, median, std, the chosen percentiles and max.
nlohmann::ordered_json JsonReport(const RunDescription& description, const Summary& summary,
                                  const ReportChoice& choice);

// Adds "rate_search", one element per probe; nothing without probes.
void AddProbes(const std::vector<RateProbe>& probes, nlohmann::ordered_json& json);

// Adds one array per quantity with an element per request: input_lens, output_lens, ttfts, itls,
// latencies, start_times, queue_times (these in seconds), errors.
void AddDetails(const RunResult& run, bool ignore_eos, nlohmann::ordered_json& json);

// One JSON object per line and request, times in milliseconds since the start of the run.
std::string RequestLines(const RunResult& run, const SummaryOptions& options);

}  // namespace tandem::loadgen
