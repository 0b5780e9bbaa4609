#pragma once

#include <string>

#include "bench/serving/report.h"

namespace tandem::loadgen {

// The report that a terminal shows: lines as `vllm bench serve` prints them, then what is ours.
std::string TextReport(const RunDescription& description, const Summary& summary,
                       const ReportChoice& choice);

}  // namespace tandem::loadgen
