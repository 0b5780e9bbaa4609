#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>

namespace tandem {

// How long outputs turn out, as a share of what each was allowed: an average of those that ended,
// recent ones counting most. Until some have ended, all of what is allowed is expected.
class ExpectedOutput {
 public:
  void Observe(int32_t tokens, int32_t allowed) {
    if (allowed < 1) return;
    ++seen_;
    const double weight = std::max(kWeight, 1.0 / static_cast<double>(seen_ + 1));
    share_ += weight * (static_cast<double>(tokens) / allowed - share_);
  }

  int32_t Tokens(int32_t allowed) const {
    return std::min(allowed, static_cast<int32_t>(std::ceil(share_ * allowed)));
  }

 private:
  static constexpr double kWeight = 1.0 / 32;
  double share_ = 1.0;
  int64_t seen_ = 0;
};

}  // namespace tandem
