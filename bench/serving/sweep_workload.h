#pragma once

#include <cstdint>
#include <span>
#include <string_view>

#include "absl/status/statusor.h"
#include "bench/serving/schedule.h"

namespace tandem::loadgen {

// A kind of load that a sweep puts on every strategy.
struct SweepWorkload {
  std::string_view name;
  std::string_view what;  // for people
};

// "short", "long", "mixed", "shifting", "bursty", "long-context", "shared-prefix", "agentic".
std::span<const SweepWorkload> SweepWorkloads();

struct SweepLoad {
  // Lengths are shares of it, so that one workload suits small and large models: no prompt with its
  // output exceeds it. At least 64.
  int32_t context_tokens = 2048;
  double rate = 1;  // requests/s
  int32_t requests = 1000;
  uint64_t seed = 0;
};

// Depends on its arguments alone. INVALID_ARGUMENT for an unknown name lists all.
absl::StatusOr<Schedule> MakeSweepSchedule(std::string_view workload, const SweepLoad& load);

}  // namespace tandem::loadgen
