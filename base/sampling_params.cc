#include "base/sampling_params.h"

#include <algorithm>
#include <string_view>

#include "base/status.h"

namespace tandem {
namespace {

constexpr float kMaxTemperature = 100;
constexpr float kMaxRepetitionPenalty = 100;
constexpr float kMaxPenalty = 2;  // presence and frequency penalty, either sign

// A range of floats. The comparisons are written so that NaN is in no range.
struct FloatRange {
  enum class End : uint8_t { kIncluded, kExcluded };

  float min;
  float max;
  End low = End::kIncluded;
  End high = End::kIncluded;
};

constexpr FloatRange AboveZeroUpTo(float max) { return {0, max, FloatRange::End::kExcluded}; }

absl::Status CheckFloat(std::string_view field, float value, const FloatRange& range) {
  const bool low = range.low == FloatRange::End::kIncluded;
  const bool high = range.high == FloatRange::End::kIncluded;
  const bool inside = (low ? value >= range.min : value > range.min) &&
                      (high ? value <= range.max : value < range.max);
  if (inside) return absl::OkStatus();
  return InvalidArgument("{}={} must be in {}{}, {}{}", field, value, low ? '[' : '(', range.min,
                         range.max, high ? ']' : ')');
}

absl::Status CheckNumLogprobs(std::string_view field, int32_t num_logprobs) {
  if (num_logprobs >= 0 && num_logprobs <= kMaxLogprobs) return absl::OkStatus();
  return InvalidArgument("{}={} must be in [0, {}]", field, num_logprobs, kMaxLogprobs);
}

}  // namespace

absl::Status SamplingParams::Validate() const {
  RETURN_IF_ERROR(CheckFloat("temperature", temperature, {0, kMaxTemperature}));
  if (top_k < 0) return InvalidArgument("top_k={} must be 0 (all) or more", top_k);
  RETURN_IF_ERROR(CheckFloat("top_p", top_p, AboveZeroUpTo(1)));
  RETURN_IF_ERROR(
      CheckFloat("min_p", min_p, {0, 1, FloatRange::End::kIncluded, FloatRange::End::kExcluded}));
  RETURN_IF_ERROR(
      CheckFloat("repetition_penalty", repetition_penalty, AboveZeroUpTo(kMaxRepetitionPenalty)));
  RETURN_IF_ERROR(CheckFloat("presence_penalty", presence_penalty, {-kMaxPenalty, kMaxPenalty}));
  RETURN_IF_ERROR(CheckFloat("frequency_penalty", frequency_penalty, {-kMaxPenalty, kMaxPenalty}));
  return num_logprobs == -1 ? absl::OkStatus() : CheckLogprobs(num_logprobs);
}

absl::Status CheckLogprobs(int32_t num_logprobs) {
  return CheckNumLogprobs("logprobs", num_logprobs);
}

absl::Status CheckPromptLogprobs(int32_t num_logprobs) {
  return CheckNumLogprobs("prompt_logprobs", num_logprobs);
}

absl::Status BeamParams::Validate() const {
  if (width < 2 || width > kMaxBeamWidth) {
    return InvalidArgument("beam_width={} must be in [2, {}]", width, kMaxBeamWidth);
  }
  return CheckFloat("length_penalty", length_penalty, {-kMaxLengthPenalty, kMaxLengthPenalty});
}

int32_t BeamCandidates(int32_t width, int32_t num_stop_tokens) {
  return width * std::max(2, 1 + num_stop_tokens);
}

}  // namespace tandem
