#pragma once

#include <string>

#include "tandem/v1/inference.pb.h"

namespace tandem {

// What a router answered to GetStatus, as lines for a person: the router, and one line per worker.
std::string WorkerTable(const v1::GetStatusResponse& status);

// Where the KV blocks of each worker are, one line per worker, and what was preempted.
std::string BlocksTable(const v1::GetStatusResponse& status);

// What each worker knows of the time of its steps, one line per worker (docs/cost_model.md).
std::string CostTable(const v1::GetStatusResponse& status);

// The links over which each worker sends KV, one line per link, and how the hand-offs of each worker
// ended.
std::string LinkTable(const v1::GetStatusResponse& status);

}  // namespace tandem
