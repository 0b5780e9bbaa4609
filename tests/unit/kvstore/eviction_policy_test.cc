#include "kvstore/eviction_policy.h"

#include "gtest/gtest.h"

namespace tandem::eviction_policy_test {
namespace {

BlockUse Use(uint64_t last_used, uint64_t hits, int64_t first_token) {
  return {.last_used = last_used,
          .hits = hits,
          .first_token = first_token,
          .num_tokens = 16,
          .bytes = 65536};
}

TEST(EvictionPolicyTest, RegistryKnowsThemAll) {
  for (const EvictionKind kind : {EvictionKind::kLru, EvictionKind::kCostAware}) {
    EXPECT_NE(NewEvictionPolicy(kind), nullptr);
  }
  EXPECT_EQ(Name(EvictionKind::kLru), "lru");
  EXPECT_EQ(Name(EvictionKind::kCostAware), "cost_aware");
}

TEST(EvictionPolicyTest, LruKnowsTimeAlone) {
  const auto policy = NewLruEviction();
  EXPECT_LT(policy->Rank(Use(1, 100, 100'000)), policy->Rank(Use(2, 0, 0)));
}

TEST(EvictionPolicyTest, CostAwareKeepsWhatIsDearAndAskedFor) {
  const auto policy = NewCostAwareEviction();
  EXPECT_LT(policy->Rank(Use(2, 0, 0)), policy->Rank(Use(1, 1, 0))) << "asked for";
  EXPECT_LT(policy->Rank(Use(2, 0, 0)), policy->Rank(Use(1, 0, 100'000))) << "long attention";
  BlockUse large = Use(1, 0, 0);
  large.bytes *= 2;
  EXPECT_LT(policy->Rank(large), policy->Rank(Use(1, 0, 0))) << "per byte";
}

TEST(EvictionPolicyTest, CostAwareForgetsInTheEnd) {
  const auto policy = NewCostAwareEviction();
  const double dear = policy->Rank(Use(1, 20, 0));
  int evictions = 0;
  for (; evictions < 1000; ++evictions) {
    const double rank = policy->Rank(Use(2 + evictions, 0, 0));
    if (rank >= dear) break;
    policy->Evicted(rank);
  }
  EXPECT_EQ(evictions, 20) << "as many as it was asked for more often";
}

}  // namespace
}  // namespace tandem::eviction_policy_test
