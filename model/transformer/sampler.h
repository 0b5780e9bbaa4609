#pragma once

#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "kernels/op_args.h"

namespace tandem {

// How a request wants its tokens chosen; the public API's defaults.
struct SamplingParams {
  float temperature = 1;  // 0: greedy
  int32_t top_k = 0;      // 0: all
  float top_p = 1;
  float min_p = 0;
  float repetition_penalty = 1;
  float presence_penalty = 0;
  float frequency_penalty = 0;
  uint64_t seed = 0;
  int32_t num_logprobs = -1;  // -1: none; 0: of the sampled token; n: and of the n most probable

  // INVALID_ARGUMENT naming the field, its value and its range.
  absl::Status Validate() const;
};

inline constexpr int32_t kMaxLogprobs = 20;

// The seed of choice `index` of a request: the request's own for 0, so that n = 1 and the first of
// n agree.
uint64_t ChoiceSeed(uint64_t seed, int32_t index);

// The sampling row for the token at `position` (= number of tokens before it) of a sequence.
SampleRow MakeSampleRow(const SamplingParams& params, int64_t position,
                        std::span<const int32_t> prompt_ids, std::span<const int32_t> output_ids);

}  // namespace tandem
