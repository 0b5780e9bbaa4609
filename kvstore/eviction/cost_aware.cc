#include <algorithm>

#include "kvstore/eviction_policy.h"

namespace tandem {
namespace {

// The context length at which attention costs as much as the rest of one token's forward pass:
// 6 * hidden for the usual 12 * hidden^2 weights per layer, here for a hidden size of 2,048.
constexpr double kEqualCostTokens = 12288;

// The rank is the expected cost of losing the block: its recompute cost times the probability of
// another hit, per byte. The number of hits stands for that probability. Age enters by `floor_`,
// the highest rank evicted so far: each use raises a block above that floor, so that even an
// expensive block is evicted when it is never used again. Source: Cherkasova, "Improving WWW
// proxies performance with greedy-dual-size-frequency caching policy", 1998.
class CostAwareEviction final : public EvictionPolicy {
 public:
  double Rank(const BlockUse& use) const override {
    const double middle = static_cast<double>(use.first_token) + 0.5 * use.num_tokens;
    const double cost = static_cast<double>(use.num_tokens) * (1 + middle / kEqualCostTokens);
    const double reuse = 1 + static_cast<double>(use.hits);
    return floor_ + cost * reuse / static_cast<double>(std::max<int64_t>(use.bytes, 1));
  }

  void Evicted(double rank) override { floor_ = std::max(floor_, rank); }

 private:
  double floor_ = 0;
};

}  // namespace

std::unique_ptr<EvictionPolicy> NewCostAwareEviction() {
  return std::make_unique<CostAwareEviction>();
}

}  // namespace tandem
