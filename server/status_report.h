#pragma once

#include <string>

#include "tandem/v1/inference.pb.h"

namespace tandem {

// What a router answered to GetStatus, as one JSON object.
std::string StatusJson(const v1::GetStatusResponse& status);

// As lines for a person: the router, and one line per worker.
std::string WorkerTable(const v1::GetStatusResponse& status);

// Where the KV blocks of each worker are, one line per worker, and what was preempted.
std::string BlockTable(const v1::GetStatusResponse& status);

// The ways that KV takes from each worker to others, one line per way, and what the workers' hand-
// offs met with.
std::string LinkTable(const v1::GetStatusResponse& status);

}  // namespace tandem
