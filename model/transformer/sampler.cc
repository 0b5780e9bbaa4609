#include "model/transformer/sampler.h"

#include "base/rng.h"
#include "base/status.h"

namespace tandem {
namespace {

// Written so that NaN is out of every range.
absl::Status CheckClosed(std::string_view name, float value, float min, float max) {
  if (value >= min && value <= max) return absl::OkStatus();
  return InvalidArgument("{} is {}: it must be from {} to {}", name, value, min, max);
}

absl::Status CheckAboveZero(std::string_view name, float value, float max) {
  if (value > 0 && value <= max) return absl::OkStatus();
  return InvalidArgument("{} is {}: it must be above 0 and at most {}", name, value, max);
}

}  // namespace

absl::Status SamplingParams::Validate() const {
  RETURN_IF_ERROR(CheckClosed("temperature", temperature, 0, 100));
  if (top_k < 0) {
    return InvalidArgument("top_k is {}: it must be 0 (all tokens) or above", top_k);
  }
  RETURN_IF_ERROR(CheckAboveZero("top_p", top_p, 1));
  if (!(min_p >= 0 && min_p < 1)) {
    return InvalidArgument("min_p is {}: it must be from 0 to below 1", min_p);
  }
  RETURN_IF_ERROR(CheckAboveZero("repetition_penalty", repetition_penalty, 100));
  RETURN_IF_ERROR(CheckClosed("presence_penalty", presence_penalty, -2, 2));
  RETURN_IF_ERROR(CheckClosed("frequency_penalty", frequency_penalty, -2, 2));
  if (num_logprobs < -1 || num_logprobs > kMaxLogprobs) {
    return InvalidArgument("num_logprobs is {}: it must be from -1 (none) to {}", num_logprobs,
                           kMaxLogprobs);
  }
  return absl::OkStatus();
}

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
