#pragma once

#include <algorithm>
#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>

namespace tandem {

// The lengths of recent outputs as fractions of the allowed length: a histogram in which old
// outputs lose weight. Until some outputs have ended, every output is expected to be as long as it
// may.
class ExpectedOutput {
 public:
  ExpectedOutput() {
    weights_.back() = 1.0;
    Sum();
  }

  // Records that an output, which was allowed `allowed` tokens, ended after `tokens` of them.
  void Observe(int32_t tokens, int32_t allowed) {
    if (allowed < 1) return;
    for (double& weight : weights_) weight *= kDecay;
    weights_[Bucket(int64_t{tokens} * kBuckets - 1, allowed)] += 1.0;
    Sum();
  }

  // The expected number of further tokens of an output that has `done` of at most `allowed` tokens
  // so far: the mean over the recorded outputs that became longer than that.
  int32_t Remaining(int32_t done, int32_t allowed) const {
    if (done >= allowed) return 0;
    const size_t bucket = Bucket(int64_t{done} * kBuckets, allowed);
    if (longer_[bucket] < kMinWeight) return allowed - done;
    const double end = mean_[bucket] * allowed;
    return std::clamp(static_cast<int32_t>(std::ceil(end)) - done, 1, allowed - done);
  }

 private:
  static constexpr int64_t kBuckets = 32;
  static constexpr double kDecay = 1.0 - 1.0 / 128;  // remembers about 128 outputs
  static constexpr double kMinWeight = 0.05;

  // The bucket of an output. Bucket i holds outputs whose fraction of the allowed length is in (i,
  // i + 1] / kBuckets.
  static size_t Bucket(int64_t parts, int32_t allowed) {
    return static_cast<size_t>(std::clamp<int64_t>(parts / allowed, 0, kBuckets - 1));
  }

  void Sum() {
    double weight = 0.0;
    double fractions = 0.0;
    for (size_t i = kBuckets; i-- > 0;) {
      weight += weights_[i];
      fractions += weights_[i] * static_cast<double>(i + 1) / kBuckets;
      longer_[i] = weight;
      mean_[i] = weight > 0.0 ? fractions / weight : 1.0;
    }
  }

  std::array<double, kBuckets> weights_{};
  std::array<double, kBuckets> longer_{};  // weight of the outputs that end in bucket i or later
  std::array<double, kBuckets> mean_{};    // mean fraction of outputs ending in bucket i or later
};

}  // namespace tandem
