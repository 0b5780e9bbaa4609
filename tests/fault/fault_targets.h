#pragma once

#include <cstdint>
#include <string>

#include "server/commands/client.h"
#include "tests/fault/fault_schedule.h"

namespace tandem {

// By how much the requests or hand-offs that a worker was given for the fault of this row grew from one
// status to the next; 0 for a worker that is not in both.
int64_t Grown(const v1::GetStatusResponse& before, const v1::GetStatusResponse& now,
              const std::string& name, const FaultRow& row);

}  // namespace tandem
