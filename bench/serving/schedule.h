#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "base/clock.h"

namespace tandem::loadgen {

// Part of a prompt: tokens drawn from `seed`. Prompts that begin with equal segments share them as
// a prefix.
struct PromptSegment {
  uint64_t seed = 0;
  int32_t tokens = 0;
};

struct ScheduledRequest {
  Duration at{};  // since the start of the run
  std::vector<PromptSegment> prompt;
  int32_t output_tokens = 1;
  std::optional<Duration> cancel_after;  // since it was sent

  int32_t prompt_tokens() const;
};

// Everything that will be asked, and when, fixed before the first request is sent. It knows nothing
// of the server, so that all servers and strategies get the same.
struct Schedule {
  std::vector<ScheduledRequest> requests;  // by time

  // A hash of all times, lengths, seeds and cancellations: runs with equal hashes asked for the
  // same.
  uint64_t Hash() const;
  // The hash as 16 hexadecimal digits.
  std::string HashText() const;
  // The time of the last arrival; zero for an empty schedule.
  Duration Length() const;
};

}  // namespace tandem::loadgen
