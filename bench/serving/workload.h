#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "bench/serving/arrivals.h"
#include "bench/serving/lengths.h"
#include "bench/serving/schedule.h"
#include "bench/serving/trace.h"

namespace tandem::loadgen {

// Which requests a run consists of.
struct WorkloadOptions {
  // Requests of a trace; without one, lengths are drawn from `input` and `output`.
  std::optional<TraceFormat> trace;
  std::string trace_path;
  double replay_speedup = 1;  // times of the trace are divided by it

  std::optional<int32_t> num_prompts;  // 1,000, or the whole trace
  LengthDistribution input;            // without the shared prefix
  LengthDistribution output;
  // Each prompt begins with one of `num_prefixes` prefixes of so many tokens.
  int32_t prefix_tokens = 0;
  int32_t num_prefixes = 1;
  // Longer prompts and outputs are cut, those of a trace as well.
  int32_t max_input = kMaxLength;
  int32_t max_output = kMaxLength;

  double cancel_share = 0;  // this share of the requests is cancelled ...
  Duration cancel_delay{};  // ... so long after it was sent
};

// INVALID_ARGUMENT names the flag and its value.
absl::Status Validate(const WorkloadOptions& options);

// `arrivals` absent: the times of the trace. `options` and `arrivals` are valid. Errors are those
// of the trace's file.
absl::StatusOr<Schedule> MakeSchedule(const WorkloadOptions& options,
                                      const std::optional<ArrivalOptions>& arrivals, uint64_t seed);

// INVALID_ARGUMENT when a request needs more tokens than a server's context has.
absl::Status CheckFits(const Schedule& schedule, int32_t max_context_tokens);

}  // namespace tandem::loadgen
