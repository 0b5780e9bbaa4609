#pragma once

#include <cstdint>
#include <span>

#include "base/sampling_params.h"
#include "kernels/op_args.h"

namespace tandem {

// The seed of choice `index` of a request. Choice 0 has the request's seed, so that n = 1 and the
// first of n choices agree.
uint64_t ChoiceSeed(uint64_t seed, int32_t index);

// The sampling row for the token at `position` (= number of tokens before it) of a sequence.
SampleRow MakeSampleRow(const SamplingParams& params, int64_t position,
                        std::span<const int32_t> prompt_ids, std::span<const int32_t> output_ids);

}  // namespace tandem
