#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace tandem {

// How long outputs turn out, as shares of what each was allowed: a histogram of those that ended,
// in which recent ones count most. Until some have ended, all of what is allowed is expected.
class ExpectedOutput {
 public:
  ExpectedOutput() {
    weights_.back() = 1.0;
    Sum();
  }

  void Observe(int32_t tokens, int32_t allowed) {
    if (allowed < 1) return;
    for (double& weight : weights_) weight *= kMemory;
    weights_[Bucket(int64_t{tokens} * kBuckets - 1, allowed)] += 1.0;
    Sum();
  }

  // How many tokens more are expected of an output that has `done` of at most `allowed`: the mean
  // of those that went on beyond that.
  int32_t Left(int32_t done, int32_t allowed) const {
    if (done >= allowed) return 0;
    const size_t bucket = Bucket(int64_t{done} * kBuckets, allowed);
    if (longer_[bucket] < kLeastWeight) return allowed - done;
    const double end = mean_[bucket] * allowed;
    return std::clamp(static_cast<int32_t>(std::ceil(end)) - done, 1, allowed - done);
  }

 private:
  static constexpr int64_t kBuckets = 32;
  static constexpr double kMemory = 1.0 - 1.0 / 128;  // about so many outputs are remembered
  static constexpr double kLeastWeight = 0.05;

  // Bucket i holds outputs whose share is in (i, i + 1] / kBuckets.
  static size_t Bucket(int64_t parts, int32_t allowed) {
    return static_cast<size_t>(std::clamp<int64_t>(parts / allowed, 0, kBuckets - 1));
  }

  void Sum() {
    double weight = 0.0;
    double shares = 0.0;
    for (size_t i = kBuckets; i-- > 0;) {
      weight += weights_[i];
      shares += weights_[i] * static_cast<double>(i + 1) / kBuckets;
      longer_[i] = weight;
      mean_[i] = weight > 0.0 ? shares / weight : 1.0;
    }
  }

  std::array<double, kBuckets> weights_{};
  std::array<double, kBuckets> longer_{};  // weight of those that end in this bucket or later
  std::array<double, kBuckets> mean_{};    // and the share at which they end
};

}  // namespace tandem
