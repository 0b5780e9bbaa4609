#include "kvstore/eviction_policy.h"

namespace tandem {
namespace {

// Evicts the least recently used block.
class LruEviction final : public EvictionPolicy {
 public:
  double Rank(const BlockUse& use) const override { return static_cast<double>(use.last_used); }
  void Evicted(double) override {}
};

}  // namespace

std::unique_ptr<EvictionPolicy> NewLruEviction() { return std::make_unique<LruEviction>(); }

}  // namespace tandem
