#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "bench/serving/sweep_plan.h"
#include "nlohmann/json.hpp"

namespace tandem::loadgen {

// Points with fewer requests are no ground for a claim.
inline constexpr int32_t kHeadlineRequests = 1000;

struct SweepResult {
  SweepPoint point;
  nlohmann::ordered_json result;  // JsonReport
};
using SweepResults = std::vector<SweepResult>;

// A number of a result, 0 where it has none: "request_goodput", or "slo_attainment" and "share".
double NumberIn(const nlohmann::ordered_json& result, std::string_view name,
                std::string_view within = {});

// The mean over seeds, and half the width of its 95% interval (Student's t); 0 for one sample.
struct SeedMean {
  double mean = 0;
  double half_width = 0;
};
SeedMean MeanOverSeeds(const std::vector<double>& samples);

// Tables of goodput, attainment and latency: one per workload, a row per rate, a column per strategy.
// The first table compares each strategy with the best of the others.
std::string SweepMarkdown(const SweepPlan& plan, const SweepResults& results);
// The same with plots, as a page that needs no other file.
std::string SweepHtml(const SweepPlan& plan, const SweepResults& results);

}  // namespace tandem::loadgen
