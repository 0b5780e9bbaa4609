#include "bench/serving/lengths.h"

#include <algorithm>
#include <cmath>
#include <string>
#include <vector>

#include "absl/strings/numbers.h"
#include "absl/strings/str_split.h"
#include "base/status.h"

namespace tandem::loadgen {
namespace {

absl::string_view ToAbsl(std::string_view text) { return {text.data(), text.size()}; }

absl::Status Refuse(std::string_view flag, std::string_view text) {
  return InvalidArgument(
      "{}={}: give a number of tokens from 1 to {}, uniform:LOW,HIGH or lognormal:MEDIAN,SIGMA",
      flag, text, kMaxLength);
}

bool IsLength(int32_t value) { return value >= 1 && value <= kMaxLength; }

}  // namespace

int32_t LengthDistribution::Draw(RandomStream& random) const {
  double drawn = low;
  if (kind == Kind::kUniform) drawn = low + std::floor(random.Uniform() * (1.0 + high - low));
  if (kind == Kind::kLogNormal) drawn = std::round(median * std::exp(sigma * random.Normal()));
  return static_cast<int32_t>(std::clamp(drawn, 1.0, static_cast<double>(limit)));
}

absl::StatusOr<LengthDistribution> ParseLength(std::string_view flag, std::string_view text) {
  LengthDistribution lengths;
  const std::pair<std::string, std::string> parts =
      absl::StrSplit(ToAbsl(text), absl::MaxSplits(':', 1));
  const std::vector<std::string> numbers = absl::StrSplit(parts.second, ',');
  if (parts.first == "uniform" && numbers.size() == 2) {
    lengths.kind = LengthDistribution::Kind::kUniform;
    if (absl::SimpleAtoi(numbers[0], &lengths.low) && absl::SimpleAtoi(numbers[1], &lengths.high) &&
        IsLength(lengths.low) && IsLength(lengths.high) && lengths.low <= lengths.high) {
      return lengths;
    }
  } else if (parts.first == "lognormal" && numbers.size() == 2) {
    lengths.kind = LengthDistribution::Kind::kLogNormal;
    constexpr double kLargestSigma = 10;
    if (absl::SimpleAtod(numbers[0], &lengths.median) &&
        absl::SimpleAtod(numbers[1], &lengths.sigma) && lengths.median >= 1 &&
        lengths.median <= kMaxLength && lengths.sigma >= 0 && lengths.sigma <= kLargestSigma) {
      return lengths;
    }
  } else if (absl::SimpleAtoi(ToAbsl(text), &lengths.low) && IsLength(lengths.low)) {
    return lengths;
  }
  return Refuse(flag, text);
}

absl::StatusOr<LengthDistribution> SpreadLength(const LengthDistribution& lengths, double ratio) {
  if (!(ratio >= 0 && ratio < 1)) {
    return InvalidArgument("--random-range-ratio={}: give a number from 0 to below 1", ratio);
  }
  if (ratio == 0) return lengths;
  if (lengths.kind != LengthDistribution::Kind::kFixed) {
    return InvalidArgument(
        "--random-range-ratio={} spreads fixed lengths only: leave it out, or give --input-len and "
        "--output-len as numbers",
        ratio);
  }
  LengthDistribution spread = lengths;
  spread.kind = LengthDistribution::Kind::kUniform;
  spread.low = std::max(1, static_cast<int32_t>(std::floor(lengths.low * (1 - ratio))));
  spread.high = static_cast<int32_t>(std::ceil(lengths.low * (1 + ratio)));
  return spread;
}

}  // namespace tandem::loadgen
