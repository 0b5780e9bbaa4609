#pragma once

#include <string>

#include "tandem/v1/inference.pb.h"

namespace tandem {

// A router's answer to GetStatus as text for a person: lines about the router, and one line per
// worker.
std::string WorkerTable(const v1::GetStatusResponse& status);

// The use of each worker's KV blocks, one line per worker, and the number of preemptions.
std::string BlocksTable(const v1::GetStatusResponse& status);

// The cost model of each worker, one line per worker (docs/cost_model.md).
std::string CostTable(const v1::GetStatusResponse& status);

// The links over which each worker sends KV, one line per link, and how the hand-offs of each
// worker ended.
std::string LinkTable(const v1::GetStatusResponse& status);

}  // namespace tandem
