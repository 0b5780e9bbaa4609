#pragma once

#include <optional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "bench/serving/record.h"

namespace tandem::loadgen {

// Service level objectives of a request, in milliseconds. Latencies are those from the scheduled
// arrival, so that waiting in the generator is not forgiven.
struct Objectives {
  std::optional<double> ttft;
  std::optional<double> tpot;
  std::optional<double> e2e;

  bool any() const { return ttft || tpot || e2e; }
};

// From "ttft:200", "tpot:50", "e2el:3000". INVALID_ARGUMENT for unknown names, repeated ones, and
// times that are not above 0.
absl::StatusOr<Objectives> ParseObjectives(const std::vector<std::string>& words);

// Whether a complete request met every objective. Of a request that gave one token, TPOT is 0.
bool MeetsObjectives(const RequestLatency& latency, const Objectives& objectives);

}  // namespace tandem::loadgen
