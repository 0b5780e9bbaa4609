#include "bench/serving/workload.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/status.h"
#include "bench/serving/random.h"

namespace tandem::loadgen {
namespace {

constexpr int32_t kDefaultPrompts = 1000;

// What a seed is mixed with, one value per use: a change of one part leaves the others as they
// were.
enum SeedPart : uint64_t { kArrivals, kInput, kOutput, kOwnText, kSharedText, kPrefix, kCancel };

// The prompt of a trace's row: a block for each hash id, then text of its own.
std::vector<PromptSegment> TracePrompt(const TraceRequest& row, int32_t block_tokens,
                                       int32_t prompt_tokens, uint64_t seed, uint64_t index) {
  std::vector<PromptSegment> prompt;
  int32_t left = prompt_tokens;
  for (const uint64_t id : row.hash_ids) {
    const int32_t tokens = std::min(block_tokens, left);
    if (tokens == 0) break;
    prompt.push_back({MixSeeds(MixSeeds(seed, kSharedText), id), tokens});
    left -= tokens;
  }
  if (left > 0) prompt.push_back({MixSeeds(MixSeeds(seed, kOwnText), index), left});
  return prompt;
}

absl::StatusOr<Schedule> ScheduleOfTrace(const WorkloadOptions& options, uint64_t seed) {
  const int64_t most = options.num_prompts.value_or(std::numeric_limits<int32_t>::max());
  ASSIGN_OR_RETURN(const Trace trace, ReadTrace(*options.trace, options.trace_path, most));
  Schedule schedule;
  for (size_t i = 0; i < trace.requests.size(); ++i) {
    const TraceRequest& row = trace.requests[i];
    ScheduledRequest request;
    request.at = Duration(std::llround(row.seconds / options.replay_speedup * 1e9));
    request.prompt = TracePrompt(row, trace.block_tokens,
                                 std::min(row.input_tokens, options.max_input), seed, i);
    request.output_tokens = std::min(row.output_tokens, options.max_output);
    schedule.requests.push_back(std::move(request));
  }
  return schedule;
}

Schedule RandomSchedule(const WorkloadOptions& options, uint64_t seed) {
  LengthDistribution input = options.input;
  LengthDistribution output = options.output;
  input.limit = std::min(input.limit, options.max_input);
  output.limit = std::min(output.limit, options.max_output);
  RandomStream inputs(MixSeeds(seed, kInput));
  RandomStream outputs(MixSeeds(seed, kOutput));
  RandomStream prefixes(MixSeeds(seed, kPrefix));
  Schedule schedule;
  const int32_t count = options.num_prompts.value_or(kDefaultPrompts);
  for (int32_t i = 0; i < count; ++i) {
    ScheduledRequest request;
    if (options.prefix_tokens > 0) {
      const auto prefix = static_cast<uint64_t>(prefixes.Uniform() * options.num_prefixes);
      request.prompt.push_back(
          {MixSeeds(MixSeeds(seed, kSharedText), prefix), options.prefix_tokens});
    }
    request.prompt.push_back(
        {MixSeeds(MixSeeds(seed, kOwnText), static_cast<uint64_t>(i)), input.Draw(inputs)});
    request.output_tokens = output.Draw(outputs);
    schedule.requests.push_back(std::move(request));
  }
  return schedule;
}

}  // namespace

absl::Status Validate(const WorkloadOptions& options) {
  if (options.num_prompts && *options.num_prompts < 1) {
    return InvalidArgument("--num-prompts={}: give at least 1", *options.num_prompts);
  }
  if (!(options.replay_speedup > 0) || std::isinf(options.replay_speedup)) {
    return InvalidArgument("--replay-speedup={}: give a number above 0; 2 replays twice as fast",
                           options.replay_speedup);
  }
  if (options.prefix_tokens < 0 || options.prefix_tokens > kMaxLength) {
    return InvalidArgument("--random-prefix-len={}: give a number of tokens from 0 to {}",
                           options.prefix_tokens, kMaxLength);
  }
  if (options.num_prefixes < 1) {
    return InvalidArgument("--num-prefixes={}: give at least 1", options.num_prefixes);
  }
  if (options.max_input < 1) {
    return InvalidArgument("--max-input-len={}: give at least 1", options.max_input);
  }
  if (options.max_output < 1) {
    return InvalidArgument("--max-output-len={}: give at least 1", options.max_output);
  }
  if (!(options.cancel_share >= 0 && options.cancel_share <= 1)) {
    return InvalidArgument("--request-cancellation-rate={}: give percent of the requests, 0 to 100",
                           options.cancel_share * 100);
  }
  return absl::OkStatus();
}

absl::StatusOr<Schedule> MakeSchedule(const WorkloadOptions& options,
                                      const std::optional<ArrivalOptions>& arrivals,
                                      uint64_t seed) {
  Schedule schedule;
  if (options.trace) {
    ASSIGN_OR_RETURN(schedule, ScheduleOfTrace(options, seed));
  } else {
    schedule = RandomSchedule(options, seed);
  }
  const int count = static_cast<int>(schedule.requests.size());
  if (arrivals) {
    const std::vector<Duration> times = MakeArrivals(*arrivals, count, MixSeeds(seed, kArrivals));
    for (int i = 0; i < count; ++i) schedule.requests[i].at = times[i];
  }
  if (options.cancel_share > 0) {
    RandomStream draws(MixSeeds(seed, kCancel));
    for (ScheduledRequest& request : schedule.requests) {
      if (draws.Uniform() < options.cancel_share) request.cancel_after = options.cancel_delay;
    }
  }
  return schedule;
}

absl::Status CheckFits(const Schedule& schedule, int32_t max_context_tokens) {
  int64_t too_long = 0;
  int64_t longest = 0;
  for (const ScheduledRequest& request : schedule.requests) {
    const int64_t tokens = int64_t{request.prompt_tokens()} + request.output_tokens;
    longest = std::max(longest, tokens);
    if (tokens > max_context_tokens) ++too_long;
  }
  if (too_long == 0) return absl::OkStatus();
  return InvalidArgument(
      "{} of {} requests need more than the server's context of {} tokens (the longest: {}): give "
      "shorter lengths, or cut them with --max-input-len and --max-output-len",
      too_long, schedule.requests.size(), max_context_tokens, longest);
}

}  // namespace tandem::loadgen
