#pragma once

#include <cstdint>
#include <limits>
#include <vector>

#include "absl/status/statusor.h"
#include "base/clock.h"

namespace tandem::loadgen {

enum class Ramp : uint8_t { kNone, kLinear, kExponential };

// When requests arrive, whatever the server does.
struct ArrivalOptions {
  double rate = std::numeric_limits<double>::infinity();  // requests/s; infinity: all at once
  // Shape of the gamma distribution of the gaps: 1 is a Poisson process, less comes in bursts, more
  // is more even, infinity is constant.
  double burstiness = 1;
  // From `ramp_start` requests/s at the first request to `ramp_end` at the last; `rate` is unused.
  Ramp ramp = Ramp::kNone;
  double ramp_start = 0;
  double ramp_end = 0;
  // Stretches all gaps, so that the last request arrives at exactly count / rate, as `vllm bench
  // serve` does: arrivals are then no Poisson process any more.
  bool normalize = false;
};

// INVALID_ARGUMENT names the flag and its value.
absl::Status Validate(const ArrivalOptions& options);

// Times since the start of the run, rising. `options` are valid.
std::vector<Duration> MakeArrivals(const ArrivalOptions& options, int count, uint64_t seed);

}  // namespace tandem::loadgen
