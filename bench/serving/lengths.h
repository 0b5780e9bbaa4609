#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/statusor.h"
#include "bench/serving/random.h"

namespace tandem::loadgen {

// No prompt and no output may have more tokens than this.
inline constexpr int32_t kMaxLength = 16 << 20;

// How many tokens a prompt or an output has.
struct LengthDistribution {
  enum class Kind : uint8_t { kFixed, kUniform, kLogNormal };
  Kind kind = Kind::kFixed;
  int32_t low = 1;             // fixed: the length; uniform: the least
  int32_t high = 1;            // uniform: the most
  double median = 1;           // log-normal
  double sigma = 0;            // log-normal: standard deviation of the logarithm
  int32_t limit = kMaxLength;  // no length exceeds it

  // Draws a length from 1 to `limit`.
  int32_t Draw(RandomStream& random) const;
};

// "128", "uniform:LOW,HIGH" or "lognormal:MEDIAN,SIGMA". INVALID_ARGUMENT quotes `flag` and `text`.
absl::StatusOr<LengthDistribution> ParseLength(std::string_view flag, std::string_view text);

// Uniform in [length * (1 - ratio), length * (1 + ratio)] where `lengths` is fixed.
// INVALID_ARGUMENT unless `ratio` is in [0, 1), and for another distribution.
absl::StatusOr<LengthDistribution> SpreadLength(const LengthDistribution& lengths, double ratio);

}  // namespace tandem::loadgen
