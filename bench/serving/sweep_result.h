#pragma once

#include <string_view>
#include <vector>

#include "bench/serving/sweep_plan.h"
#include "nlohmann/json.hpp"

namespace tandem::loadgen {

struct SweepResult {
  SweepPoint point;
  nlohmann::ordered_json result;  // JsonReport
};
using SweepResults = std::vector<SweepResult>;

// A number of a result, 0 where it has none: "request_goodput", or "slo_attainment" and "share".
double NumberIn(const nlohmann::ordered_json& result, std::string_view name,
                std::string_view within = {});

}  // namespace tandem::loadgen
