#include <numeric>

#include "gtest/gtest.h"
#include "tests/unit/kvstore/kv_store_fixture.h"

namespace tandem::kv_store_prefix_test {
namespace {

class KvStorePrefixTest : public KvStoreFixture {
 protected:
  void SetUp() override { Open({.num_blocks = 16}); }
};

TEST_F(KvStorePrefixTest, FullBlocksAndTheTokensThatAgreeAreAttached) {
  Cache(Tokens(24));
  std::vector<int32_t> tokens = Tokens(40);
  tokens[20] = 1000;
  const PrefixMatch match = Match(tokens);
  EXPECT_EQ(match.device_tokens, 20);
  EXPECT_EQ(match.device_blocks, 3);
  EXPECT_EQ(match.idle_blocks, 3);
  EXPECT_FALSE(match.pending);

  PrefixKey key = store_->NewKey("");
  BlockTable table(kBlockTokens);
  ASSERT_EQ(store_->Attach(key, tokens, 39, table), 20);
  ExpectHolds(table, tokens, 20);
  EXPECT_EQ(Match(tokens).idle_blocks, 0);
  Compute(table, tokens, 20);
  EXPECT_EQ(store_->stats().copied_blocks, 1) << "the partial one, when it was written";
  ExpectHolds(table, tokens, 40);
  EXPECT_EQ(Match(Tokens(25)).device_tokens, 24) << "what was cached is as it was";
  EXPECT_EQ(store_->stats().hit_tokens, 20);
  EXPECT_EQ(store_->stats().query_tokens, 39 + 24);
}

TEST_F(KvStorePrefixTest, AtMostTheTokensAskedFor) {
  Cache(Tokens(16));
  PrefixKey key = store_->NewKey("");
  EXPECT_EQ(store_->Match(key, Tokens(16), 15).device_tokens, 15) << "one is left to compute";
  EXPECT_EQ(store_->Match(key, Tokens(16), 16).device_tokens, 16);
  EXPECT_EQ(store_->Match(key, Tokens(16), 8).device_tokens, 8);
  EXPECT_EQ(store_->Match(key, Tokens(16), 8).device_blocks, 1);
  EXPECT_EQ(store_->Match(key, Tokens(16), 0).device_tokens, 0);
}

TEST_F(KvStorePrefixTest, SaltsPartTheCache) {
  Cache(Tokens(16), "a");
  EXPECT_EQ(Match(Tokens(17), "a").device_tokens, 16);
  EXPECT_EQ(Match(Tokens(17), "b").device_tokens, 0);
  EXPECT_EQ(Match(Tokens(17)).device_tokens, 0);
}

TEST_F(KvStorePrefixTest, OutputsJoinTheCacheAsTheyGrow) {
  PrefixKey key = store_->NewKey("");
  BlockTable table(kBlockTokens);
  std::vector<int32_t> tokens;
  for (int32_t i = 0; i < 20; ++i) {
    tokens.push_back(i);
    Compute(table, tokens, i);
    store_->Insert(key, tokens, i + 1, table);
    EXPECT_EQ(store_->stats().cached_blocks, (i + 1) / kBlockTokens);
  }
  EXPECT_EQ(store_->stats().idle_blocks, 0);
  table.Truncate(0);
  EXPECT_EQ(store_->stats().idle_blocks, 2);
  EXPECT_EQ(store_->AvailableBlocks(), 16);
  EXPECT_EQ(Match(Tokens(20)).device_tokens, 16);
}

TEST_F(KvStorePrefixTest, EqualBlocksAreCachedOnce) {
  BlockTable first(kBlockTokens);
  BlockTable second(kBlockTokens);
  PrefixKey first_key = store_->NewKey("");
  PrefixKey second_key = store_->NewKey("");
  const auto tokens = Tokens(24);
  Compute(first, tokens);
  Compute(second, tokens);
  store_->Insert(first_key, tokens, 16, first);
  store_->Insert(second_key, tokens, 24, second);
  EXPECT_EQ(store_->stats().cached_blocks, 3) << "two of the first, one of the second";
  first.Truncate(0);
  EXPECT_EQ(store_->stats().idle_blocks, 2) << "though the second continues them";
  BlockTable large(kBlockTokens);
  ASSERT_EQ(store_->Reserve(large, 13 * kBlockTokens), absl::OkStatus());
  EXPECT_EQ(store_->stats().cached_blocks, 0) << "what continues an evicted block goes with it";
  ExpectHolds(second, tokens, 24);
  store_->Insert(second_key, tokens, 24, second);
  EXPECT_EQ(store_->stats().cached_blocks, 0) << "nothing new";
}

TEST_F(KvStorePrefixTest, EvictsLeavesFirstAndOnlyAsManyAsNeeded) {
  Cache(Tokens(6 * kBlockTokens));
  BlockTable table(kBlockTokens);
  ASSERT_EQ(store_->Reserve(table, 12 * kBlockTokens), absl::OkStatus());
  EXPECT_EQ(store_->stats().evicted_blocks, 2);
  EXPECT_EQ(Match(Tokens(100)).device_tokens, 4 * kBlockTokens);
  EXPECT_EQ(store_->Reserve(table, 17 * kBlockTokens).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(store_->stats().evicted_blocks, 2) << "in vain nothing is evicted";
}

TEST_F(KvStorePrefixTest, CopyOnWriteEvictsToo) {
  Cache(Tokens(12 * kBlockTokens));
  BlockTable table(kBlockTokens);
  Compute(table, Tokens(4 * kBlockTokens, 1000));
  BlockTable fork = table.Fork();
  EXPECT_EQ(store_->BlocksGivenBack(std::span(&fork, 1)), 0);
  BlockCopies copies;
  ASSERT_EQ(store_->MakeWritable(fork, 0, 16, copies), absl::OkStatus());
  EXPECT_EQ(store_->stats().evicted_blocks, 2);
  EXPECT_EQ(store_->BlocksGivenBack(std::span(&fork, 1)), 2);
}

// Three tables write where they shared a cached block, in a pool with just enough room.
TEST_F(KvStorePrefixTest, WhatIsToBeCopiedIsNotHandedOutBefore) {
  const auto tokens = Tokens(kBlockTokens);
  Cache(tokens);
  PrefixKey key = store_->NewKey("");
  std::vector<BlockTable> tables;
  for (int i = 0; i < 3; ++i) {
    ASSERT_EQ(store_->Attach(key, tokens, kBlockTokens, tables.emplace_back(kBlockTokens)),
              kBlockTokens);
  }
  const int32_t read = tables[0].block_ids()[0];
  BlockTable other(kBlockTokens);
  ASSERT_EQ(store_->Reserve(other, (store_->AvailableBlocks() - 3) * kBlockTokens),
            absl::OkStatus());
  BlockCopies copies;
  for (BlockTable& table : tables) {
    ASSERT_EQ(store_->MakeWritable(table, 0, kBlockTokens, copies), absl::OkStatus());
  }
  ASSERT_EQ(copies.pairs.size(), 3u);
  for (const BlockPair& pair : copies.pairs) EXPECT_EQ(pair.from, read);
  EXPECT_EQ(store_->AvailableBlocks(), 0) << "the cached one is still to be read";
  ASSERT_EQ(CopyBlocks(copies), absl::OkStatus());
  for (const BlockTable& table : tables) ExpectHolds(table, tokens, kBlockTokens);
  copies.Clear();
  EXPECT_EQ(store_->AvailableBlocks(), 1);
  // Of two tables alone, the last to write takes the block as it is.
  BlockTable fork = tables[0].Fork();
  ASSERT_EQ(store_->MakeWritable(fork, 0, kBlockTokens, copies), absl::OkStatus());
  EXPECT_TRUE(copies.kept.empty());
  ASSERT_EQ(store_->MakeWritable(tables[0], 0, kBlockTokens, copies), absl::OkStatus());
  EXPECT_EQ(copies.pairs.size(), 1u);
}

TEST_F(KvStorePrefixTest, WhatSomebodyComputesIsPending) {
  const auto tokens = Tokens(32);
  PrefixKey key = store_->NewKey("");
  BlockTable table(kBlockTokens);
  store_->Expect(SequenceId(1), key, tokens);
  EXPECT_TRUE(Match(tokens).pending);
  std::vector<int32_t> other = tokens;
  other[10] = 1000;
  EXPECT_TRUE(Match(other).pending) << "its first block is the same";
  Compute(table, tokens);
  store_->Insert(key, tokens, 8, table);
  EXPECT_FALSE(Match(other).pending);
  EXPECT_TRUE(Match(tokens).pending);
  EXPECT_FALSE(Match(Tokens(12)).pending) << "the next block is not full";
  store_->Unexpect(SequenceId(1));
  store_->Unexpect(SequenceId(7));
  EXPECT_FALSE(Match(tokens).pending);
}

TEST_F(KvStorePrefixTest, ClearKeepsWhatIsInUse) {
  Cache(Tokens(24));
  PrefixKey key = store_->NewKey("");
  BlockTable table(kBlockTokens);
  ASSERT_EQ(store_->Attach(key, Tokens(17), 16, table), 16);
  store_->ClearCache();
  EXPECT_EQ(store_->stats().cached_blocks, 2);
  EXPECT_EQ(store_->stats().idle_blocks, 0);
  table.Truncate(0);
  store_->ClearCache();
  EXPECT_EQ(store_->stats().free_blocks, 16);
}

TEST(KvStorePrefixOffTest, NothingIsCached) {
  auto backend = OpenBackend("cpu", {.num_threads = 1});
  ASSERT_TRUE(backend.ok()) << backend.status();
  const std::unique_ptr<Stream> stream = *backend->device->NewStream();
  const auto store = *KvStore::Create(
      {.layout = {.num_layers = 1, .num_kv_heads = 1, .head_dim = 8, .block_tokens = 8},
       .num_blocks = 4,
       .prefix_caching = PrefixCaching::kOff},
      *backend->device, *stream, [] {});
  PrefixKey key = store->NewKey("");
  BlockTable table(8);
  std::vector<int32_t> tokens(16);
  ASSERT_EQ(store->Reserve(table, 16), absl::OkStatus());
  store->Insert(key, tokens, 16, table);
  store->Expect(SequenceId(1), key, tokens);
  EXPECT_EQ(store->Match(key, tokens, 15).device_tokens, 0);
  EXPECT_FALSE(store->Match(key, tokens, 15).pending);
  EXPECT_EQ(store->stats().cached_blocks, 0);
}

}  // namespace
}  // namespace tandem::kv_store_prefix_test
