#include "kvstore/prefix_cache.h"

#include <numeric>
#include <vector>

#include "fmt/format.h"
#include "gtest/gtest.h"

namespace tandem::prefix_cache_test {
namespace {

constexpr int32_t kBlockTokens = 8;
constexpr int32_t kNumBlocks = 32;

std::vector<int32_t> Tokens(int64_t count, int32_t first = 0) {
  std::vector<int32_t> tokens(count);
  std::iota(tokens.begin(), tokens.end(), first);
  return tokens;
}

class PrefixCacheTest : public ::testing::Test {
 protected:
  explicit PrefixCacheTest(EvictionKind eviction = EvictionKind::kLru)
      : cache_({.layout = {.num_layers = 1,
                           .num_kv_heads = 1,
                           .head_dim = 8,
                           .block_tokens = kBlockTokens},
                .fingerprint = 1,
                .eviction = eviction,
                .journal = &journal_},
               pool_, tier_) {}

  void Cache(const std::vector<int32_t>& tokens) {
    BlockTable table(kBlockTokens);
    ASSERT_EQ(table.Reserve(pool_, std::ssize(tokens)), absl::OkStatus());
    PrefixKey key = cache_.NewKey("");
    cache_.Insert(key, tokens, std::ssize(tokens), table);
  }

  PrefixPath Find(const std::vector<int32_t>& tokens) {
    return cache_.Find(cache_.NewKey(""), tokens, std::ssize(tokens));
  }

  // As a sequence that takes them and ends.
  void Use(const std::vector<int32_t>& tokens) {
    const PrefixPath path = Find(tokens);
    cache_.Hit(path);
    std::vector<BlockRef> blocks;
    for (const PrefixNode* node : path.device) blocks.push_back(node->block.Share());
    if (path.tail != nullptr) blocks.push_back(path.tail->block.Share());
    const BlockTable table = BlockTable::Over(kBlockTokens, std::move(blocks));
  }

  void TearDown() override { EXPECT_EQ(cache_.CheckInvariants(), absl::OkStatus()); }

  BlockPool pool_{kNumBlocks};
  HostTier tier_;
  PrefixJournal journal_;  // CheckInvariants compares it with the cache
  PrefixCache cache_;
};

TEST_F(PrefixCacheTest, AHashThatAgreesIsNoHit) {
  const auto tokens = Tokens(24);
  Cache(tokens);
  PrefixNode& second = *Find(tokens).device.at(1);
  // As if other tokens had the hash of these.
  second.tokens[3] = 1000;
  EXPECT_EQ(Find(tokens).device.size(), 1u);
  BlockTable table(kBlockTokens);
  ASSERT_EQ(table.Reserve(pool_, 24), absl::OkStatus());
  PrefixKey key = cache_.NewKey("");
  cache_.Insert(key, tokens, 24, table);
  EXPECT_EQ(Find(tokens).device.size(), 1u) << "there is no room for a second of that hash";
  second.tokens = {8, 9, 10, 11, 12, 13, 14, 15};
  EXPECT_EQ(Find(tokens).device.size(), 3u);
}

TEST_F(PrefixCacheTest, SaltsThatHashAlikeShareNothing) {
  const auto tokens = Tokens(16);
  Cache(tokens);
  PrefixNode& first = *Find(tokens).device.at(0);
  PrefixNode other_root;
  PrefixNode* const root = first.parent;
  first.parent = &other_root;  // as if it were of another salt
  EXPECT_EQ(Find(tokens).device.size(), 0u);
  first.parent = root;
}

TEST_F(PrefixCacheTest, TheLongestTailIsFound) {
  for (const int32_t third : {1, 5, 9}) {
    auto tokens = Tokens(16);
    tokens[8 + 2] = third;
    Cache(tokens);
  }
  auto tokens = Tokens(16);
  tokens[8 + 2] = 5;
  tokens[8 + 6] = 1000;
  EXPECT_EQ(Find(tokens).tail_tokens, 6);
  tokens[8 + 2] = 6;
  EXPECT_EQ(Find(tokens).tail_tokens, 2);
  tokens[8] = 0;
  EXPECT_EQ(Find(tokens).tail, nullptr);
}

TEST_F(PrefixCacheTest, RootsWithoutUseGo) {
  const PrefixKey kept = cache_.NewKey("kept");
  Cache(Tokens(8));  // salt ""
  for (int i = 0; i < 10'000; ++i) (void)cache_.NewKey(fmt::format("tenant {}", i));
  EXPECT_LE(cache_.num_roots(), 64);
  EXPECT_EQ(&cache_.NewKey("kept").root(), &kept.root());
  EXPECT_EQ(Find(Tokens(8)).device.size(), 1u);
}

TEST_F(PrefixCacheTest, TheOldestGoesAndAlwaysALeaf) {
  Cache(Tokens(32));
  Cache(Tokens(32, 100));
  Use(Tokens(16));
  ASSERT_TRUE(cache_.MakeFree(kNumBlocks - 6));
  EXPECT_EQ(Find(Tokens(32)).device.size(), 2u) << "used last";
  EXPECT_EQ(Find(Tokens(32, 100)).device.size(), 4u);
  ASSERT_TRUE(cache_.MakeFree(kNumBlocks - 3));
  EXPECT_EQ(Find(Tokens(32)).device.size(), 2u);
  EXPECT_EQ(Find(Tokens(32, 100)).device.size(), 1u);
  EXPECT_FALSE(cache_.MakeFree(kNumBlocks + 1));
  EXPECT_EQ(cache_.num_evicted(), 5);
}

// The second sequence that computes the prefix holds blocks of its own, so no block of the cache is
// taken by it: only its Insert tells the cache that the prefix is in demand.
TEST_F(PrefixCacheTest, APrefixThatIsComputedAgainCountsAsUsed) {
  Cache(Tokens(16));
  Cache(Tokens(16, 100));
  Cache(Tokens(16));
  ASSERT_TRUE(cache_.MakeFree(kNumBlocks - 2));
  EXPECT_EQ(Find(Tokens(16)).device.size(), 2u);
  EXPECT_EQ(Find(Tokens(16, 100)).device.size(), 0u);
}

TEST_F(PrefixCacheTest, TheJournalHasTheHashesOfWhatIsCached) {
  PrefixReader reader(journal_);
  Cache(Tokens(24));
  const PrefixChanges first = reader.Next(0, 100);
  const PrefixKey key = cache_.NewKey("");
  const auto hashes = key.Extend(Tokens(24));
  EXPECT_EQ(first.added, std::vector(hashes.begin(), hashes.end())) << "a prefix comes first";
  ASSERT_TRUE(cache_.MakeFree(kNumBlocks - 1));
  const PrefixChanges second = reader.Next(first.sequence, 100);
  EXPECT_EQ(second.removed, (std::vector{first.added[2], first.added[1]})) << "and goes last";
}

class CostAwareCacheTest : public PrefixCacheTest {
 protected:
  CostAwareCacheTest() : PrefixCacheTest(EvictionKind::kCostAware) {}
};

TEST_F(CostAwareCacheTest, WhatWasAskedForOftenStays) {
  Cache(Tokens(32));
  for (int i = 0; i < 3; ++i) Use(Tokens(32));
  Cache(Tokens(32, 100));
  Cache(Tokens(32, 200));
  ASSERT_TRUE(cache_.MakeFree(kNumBlocks - 4));
  EXPECT_EQ(Find(Tokens(32)).device.size(), 4u) << "though it was used first";
}

TEST_F(CostAwareCacheTest, ABlockThatIsUsedInPartCountsAsAskedFor) {
  Cache(Tokens(8));
  Use(Tokens(5));
  Cache(Tokens(8, 100));
  ASSERT_TRUE(cache_.MakeFree(kNumBlocks - 1));
  EXPECT_EQ(Find(Tokens(8)).device.size(), 1u) << "though it was used first";
  EXPECT_EQ(Find(Tokens(8, 100)).device.size(), 0u);
}

}  // namespace
}  // namespace tandem::prefix_cache_test
