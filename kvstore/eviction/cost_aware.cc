#include <algorithm>

#include "kvstore/eviction_policy.h"

namespace tandem {
namespace {

// Attention over so many tokens costs what the rest of one token's forward pass does: 6 * hidden
// for the usual 12 * hidden^2 weights per layer, at a hidden size of 2,048.
constexpr double kEqualCostTokens = 12288;

// What is lost with a block: its recompute cost, times how likely it is asked for again, per byte.
// Hits stand for that likelihood, and age comes in by `floor_`: a block ranks above what was
// evicted before it was last used, so that one that is never asked for again goes in the end,
// however dear. Source: Cherkasova, "Improving WWW proxies performance with
// greedy-dual-size-frequency caching policy", 1998.
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
