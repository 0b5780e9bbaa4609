#include "model/transformer/sampler.h"

#include "base/rng.h"

namespace tandem {
uint64_t ChoiceSeed(uint64_t seed, int32_t index) {
  if (index == 0) return seed;
  const auto bits = Philox4x32(seed, static_cast<uint64_t>(index), 0);
  return (uint64_t{bits[1]} << 32) | bits[0];
}

SampleRow MakeSampleRow(const SamplingParams& params, int64_t position,
                        std::span<const int32_t> prompt_ids, std::span<const int32_t> output_ids) {
  return {.temperature = params.temperature,
          .top_k = params.top_k,
          .top_p = params.top_p,
          .min_p = params.min_p,
          .repetition_penalty = params.repetition_penalty,
          .presence_penalty = params.presence_penalty,
          .frequency_penalty = params.frequency_penalty,
          .seed = params.seed,
          .position = position,
          .num_logprobs = params.num_logprobs,
          .prompt_ids = prompt_ids,
          .output_ids = output_ids};
}

}  // namespace tandem
