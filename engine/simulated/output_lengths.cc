#include "engine/simulated/output_lengths.h"

#include <algorithm>
#include <cmath>

#include "base/rng.h"
#include "base/status.h"

namespace tandem {
namespace {

// The position of the random draw for an output's length. Draws for tokens have positive positions.
constexpr uint64_t kLengthPosition = 0;

absl::Status CheckQuantiles(const OutputLengths::Bucket& bucket) {
  const std::vector<OutputLengths::Quantile>& quantiles = bucket.quantiles;
  const auto refuse = [&bucket](const auto& why) {
    return InvalidArgument("output_lengths: the quantiles of prompts up to {} tokens {}",
                           bucket.max_prompt_tokens, why);
  };
  if (quantiles.size() < 2 || quantiles.front().share != 0 || quantiles.back().share != 1) {
    return refuse("must go from share 0 to share 1");
  }
  if (quantiles.front().tokens < 1) return refuse("begin below 1 token");
  for (size_t i = 1; i < quantiles.size(); ++i) {
    const bool rises = quantiles[i].share > quantiles[i - 1].share &&
                       quantiles[i].tokens >= quantiles[i - 1].tokens;
    if (!rises) return refuse(fmt::format("do not rise at share {}", quantiles[i].share));
  }
  return absl::OkStatus();
}

double Interpolate(const std::vector<OutputLengths::Quantile>& quantiles, double share) {
  size_t above = 1;
  while (above + 1 < quantiles.size() && quantiles[above].share < share) ++above;
  const OutputLengths::Quantile& low = quantiles[above - 1];
  const OutputLengths::Quantile& high = quantiles[above];
  const double part = (share - low.share) / (high.share - low.share);
  return low.tokens + part * (high.tokens - low.tokens);
}

}  // namespace

absl::Status OutputLengths::Validate() const {
  for (size_t i = 0; i < buckets.size(); ++i) {
    const int32_t before = i == 0 ? 0 : buckets[i - 1].max_prompt_tokens;
    if (buckets[i].max_prompt_tokens <= before) {
      return InvalidArgument("output_lengths: max_prompt_tokens {} after {}: they must rise",
                             buckets[i].max_prompt_tokens, before);
    }
    RETURN_IF_ERROR(CheckQuantiles(buckets[i]));
  }
  return absl::OkStatus();
}

std::optional<int32_t> OutputLengths::LengthOf(uint64_t seed, int32_t prompt_tokens) const {
  if (buckets.empty()) return std::nullopt;
  auto bucket = std::ranges::find_if(
      buckets, [=](const Bucket& one) { return prompt_tokens <= one.max_prompt_tokens; });
  if (bucket == buckets.end()) --bucket;
  const double length = Interpolate(bucket->quantiles, UniformAt(seed, kLengthPosition));
  return std::max(1, static_cast<int32_t>(std::lround(length)));
}

}  // namespace tandem
