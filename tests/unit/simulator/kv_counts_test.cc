#include "bench/simulator/kv_counts.h"

#include <vector>

#include "gtest/gtest.h"

namespace tandem::simulator::kv_counts_test {
namespace {

using Holding = KvCounts::Holding;

const std::vector<uint64_t> kHashes = {11, 12, 13, 14};

KvCounts Pool(int32_t blocks) { return KvCounts({.total_blocks = blocks, .block_tokens = 16}); }

TEST(KvCountsTest, WhatIsInsertedIsFoundAndSharedOnce) {
  KvCounts pool = Pool(10);
  Holding first;
  pool.Grow(first, 5);
  pool.Insert(kHashes, 64, first);
  EXPECT_EQ(first.cached.size(), 4u);
  EXPECT_EQ(pool.Available(), 5);
  const KvCounts::Match match = pool.Find(kHashes, 70);
  EXPECT_EQ(match.blocks, 4);
  EXPECT_EQ(match.idle_blocks, 0);
  Holding second;
  pool.Attach(kHashes, 3, second);
  EXPECT_EQ(pool.Available(), 5);
  EXPECT_EQ(pool.FreedBy(first), 2);
  pool.Free(first);
  EXPECT_EQ(pool.Available(), 7);
  pool.Free(second);
  EXPECT_EQ(pool.Available(), 10);
}

TEST(KvCountsTest, TheEndOfThePromptThatWasFreedFirstIsEvictedFirst) {
  KvCounts pool = Pool(4);
  Holding first;
  pool.Grow(first, 4);
  pool.Insert(kHashes, 64, first);
  pool.Free(first);
  Holding other;
  pool.Grow(other, 2);
  EXPECT_EQ(pool.Find(kHashes, 64).blocks, 2);
  EXPECT_EQ(pool.Find(kHashes, 64).idle_blocks, 2);
  EXPECT_EQ(pool.stats().evicted_blocks, 2);
  EXPECT_EQ(pool.Available(), 2);
}

TEST(KvCountsTest, ABlockThatIsComputedTwiceIsHeldOnce) {
  KvCounts pool = Pool(8);
  Holding first;
  Holding second;
  pool.Grow(first, 2);
  pool.Grow(second, 2);
  pool.Insert(kHashes, 32, first);
  pool.Insert(kHashes, 32, second);
  EXPECT_EQ(pool.Available(), 6);
  pool.Free(first);
  pool.Free(second);
  EXPECT_EQ(pool.Available(), 8);
  EXPECT_EQ(pool.stats().cached_blocks, 2);
}

TEST(KvCountsTest, ABlockThatIsBeingComputedIsPending) {
  KvCounts pool = Pool(8);
  Holding first;
  pool.Grow(first, 4);
  pool.Insert(kHashes, 16, first);
  pool.Expect(kHashes[1]);
  EXPECT_TRUE(pool.Find(kHashes, 64).pending);
  pool.Unexpect(kHashes[1]);
  EXPECT_FALSE(pool.Find(kHashes, 64).pending);
}

TEST(KvCountsTest, WithoutCachingNothingIsFound) {
  KvCounts pool({.total_blocks = 8, .block_tokens = 16, .caching = PrefixCaching::kOff});
  Holding first;
  pool.Grow(first, 4);
  pool.Insert(kHashes, 64, first);
  EXPECT_EQ(pool.Find(kHashes, 64).blocks, 0);
  pool.Free(first);
  EXPECT_EQ(pool.Available(), 8);
}

}  // namespace
}  // namespace tandem::simulator::kv_counts_test
