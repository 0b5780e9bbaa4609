#pragma once

#include <string>

#include "bench/serving/sweep_plan.h"
#include "bench/serving/sweep_result.h"

namespace tandem::loadgen {

// Points with fewer requests are no ground for a claim.
inline constexpr int32_t kHeadlineRequests = 1000;

// Tables of goodput, attainment and latency: one per workload, a row per rate, a column per
// strategy. The first tables compare the strategies that adapt with the others, and each strategy
// with the best of the others.
std::string SweepMarkdown(const SweepPlan& plan, const SweepResults& results);
// The same with plots, as a page that needs no other file.
std::string SweepHtml(const SweepPlan& plan, const SweepResults& results);

}  // namespace tandem::loadgen
