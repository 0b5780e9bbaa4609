// Cached prefixes that leave the device for the host, and come back.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/kvstore/kv_store_host_fixture.h"

namespace tandem::kv_store_host_test {
namespace {

using kv_store_host::kGroupTokens;
using kv_store_host::kSlabBytes;
using kv_store_host::KvStoreHostTest;
using ::testing::IsEmpty;

TEST_F(KvStoreHostTest, AFullStoreBlockIsWrittenThroughWhenItIsAskedForAgain) {
  const auto tokens = Tokens(kGroupTokens + 24);
  Cache(tokens);
  EXPECT_THAT(AllCompletions(), IsEmpty());
  Cache(tokens);
  EXPECT_EQ(store_->stats().pinned_blocks, 16);
  const auto completions = AllCompletions();
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].kind, KvCompletion::Kind::kDemote);
  EXPECT_EQ(completions[0].blocks, 16);
  EXPECT_EQ(store_->stats().demoted_blocks, 16);
  EXPECT_EQ(store_->stats().host_prefix_blocks, 16);
  EXPECT_EQ(store_->stats().host_used_bytes, kSlabBytes);
  Cache(tokens);
  EXPECT_THAT(AllCompletions(), IsEmpty()) << "it is there already";
}

TEST_F(KvStoreHostTest, ComesBackAndHoldsWhatItHeld) {
  const auto tokens = Tokens(kGroupTokens + 24);
  SendToHost(tokens);
  const PrefixMatch match = Match(tokens);
  EXPECT_EQ(match.device_tokens, 0);
  EXPECT_EQ(match.host_tokens, kGroupTokens);
  EXPECT_EQ(match.host_blocks, 16);
  EXPECT_FALSE(match.pending);
  ASSERT_EQ(Restore(tokens), absl::OkStatus());
  EXPECT_TRUE(Match(tokens).pending);
  EXPECT_EQ(Match(tokens).host_tokens, 0);
  EXPECT_EQ(Restore(tokens).code(), absl::StatusCode::kNotFound) << "it is on its way";
  const auto completions = AllCompletions();
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].kind, KvCompletion::Kind::kRestore);
  EXPECT_EQ(completions[0].status, absl::OkStatus());
  EXPECT_EQ(completions[0].blocks, 16);
  EXPECT_EQ(Match(tokens).idle_blocks, 16);
  EXPECT_EQ(store_->stats().restored_blocks, 16);
  ExpectAttaches(tokens, kGroupTokens);
}

TEST_F(KvStoreHostTest, OnlyWhatTheDeviceLacksComesBack) {
  const auto tokens = Tokens(kGroupTokens);
  SendToHost(tokens);
  Cache(Tokens(20));  // two blocks of it are computed again
  EXPECT_EQ(Match(tokens).device_tokens, 16);
  EXPECT_EQ(store_->Match(store_->NewKey(""), tokens, 128).host_blocks, 14);
  ASSERT_EQ(Restore(tokens), absl::OkStatus());
  EXPECT_EQ(AllCompletions().at(0).blocks, 14);
  ExpectAttaches(tokens, kGroupTokens);
}

TEST_F(KvStoreHostTest, TheLastStoreBlockMayBePartial) {
  const auto tokens = Tokens(42);
  Cache(tokens);
  BlockTable most(kBlockTokens);
  ASSERT_EQ(store_->Reserve(most, 32 * kBlockTokens), absl::OkStatus());
  EXPECT_THAT(AllCompletions(), ::testing::SizeIs(1)) << "free blocks run low";
  EXPECT_EQ(store_->stats().demoted_blocks, 5);
  Fill(most);
  EXPECT_EQ(store_->stats().host_dropped_blocks, 0);
  most.Truncate(0);
  EXPECT_EQ(Match(tokens).host_tokens, 40);
  ASSERT_EQ(Restore(tokens), absl::OkStatus());
  AllCompletions();
  ExpectAttaches(tokens, 40);
}

TEST_F(KvStoreHostTest, WhatIsNeededNowIsDroppedAndCounted) {
  Cache(Tokens(42));
  BlockTable all(kBlockTokens);
  Fill(all);
  EXPECT_EQ(store_->stats().host_dropped_blocks, 5);
  EXPECT_EQ(store_->stats().evicted_blocks, 5);
}

TEST_F(KvStoreHostTest, DamageIsAMiss) {
  const auto tokens = Tokens(2 * kGroupTokens);
  SendToHost(tokens);
  EXPECT_EQ(store_->stats().host_prefix_blocks, 32);
  device_->written().front()[5] ^= std::byte{1};
  ASSERT_EQ(Restore(tokens), absl::OkStatus());
  const auto completions = AllCompletions();
  ASSERT_EQ(completions.size(), 1u);
  EXPECT_EQ(completions[0].status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(completions[0].blocks, 0) << "the second continued the first";
  EXPECT_EQ(store_->stats().host_prefix_blocks, 0);
  EXPECT_EQ(store_->stats().host_used_bytes, 0);
  EXPECT_EQ(store_->stats().free_blocks, 40);
  EXPECT_EQ(Match(tokens).device_tokens, 0);
}

TEST_F(KvStoreHostTest, DamageBehindWhatIsGoodLeavesThat) {
  const auto tokens = Tokens(2 * kGroupTokens);
  SendToHost(tokens);
  device_->written().back()[5] ^= std::byte{1};
  ASSERT_EQ(Restore(tokens), absl::OkStatus());
  EXPECT_EQ(AllCompletions().at(0).blocks, 16);
  ExpectAttaches(tokens, kGroupTokens);
}

TEST_F(KvStoreHostTest, TheOldestLeavesTheHost) {
  OpenWithSlabs(1);
  SendToHost(Tokens(kGroupTokens));
  SendToHost(Tokens(kGroupTokens, 1000));
  EXPECT_EQ(Match(Tokens(kGroupTokens + 1)).host_tokens, 0);
  EXPECT_EQ(Match(Tokens(kGroupTokens + 1, 1000)).host_tokens, kGroupTokens);
  EXPECT_EQ(store_->stats().host_dropped_blocks, 16);
}

TEST_F(KvStoreHostTest, ARestoredPrefixIsTheLastToLeaveTheHost) {
  OpenWithSlabs(2);
  SendToHost(Tokens(kGroupTokens));
  SendToHost(Tokens(kGroupTokens, 1000));
  ASSERT_EQ(Restore(Tokens(kGroupTokens)), absl::OkStatus());
  AllCompletions();
  SendToHost(Tokens(kGroupTokens, 2000));  // the host has no slab left for it
  EXPECT_EQ(Match(Tokens(kGroupTokens + 1)).host_tokens, kGroupTokens);
  EXPECT_EQ(Match(Tokens(kGroupTokens + 1, 1000)).host_tokens, 0);
}

TEST_F(KvStoreHostTest, BlocksUnderACopyDoNotCountAsGivenBack) {
  const auto tokens = Tokens(kGroupTokens + 24);
  std::vector<BlockTable> tables;
  Compute(tables.emplace_back(kBlockTokens), tokens);
  PrefixKey key = store_->NewKey("");
  store_->Insert(key, tokens, NumTokens(tokens), tables.front());
  device_->CloseGate();
  Cache(tokens);  // asks for the prefix, which copies its 16 first blocks to the host
  ASSERT_EQ(store_->stats().pinned_blocks, 16);
  const int32_t before = store_->AvailableBlocks();
  EXPECT_EQ(store_->BlocksGivenBack(tables), 3);
  tables.clear();
  EXPECT_EQ(store_->AvailableBlocks(), before + 3);
  device_->OpenGate();
  AllCompletions();
  EXPECT_EQ(store_->AvailableBlocks(), 40);
}

TEST_F(KvStoreHostTest, WhatIsReadDoesNotLeaveTheHost) {
  OpenWithSlabs(1);
  const auto tokens = Tokens(kGroupTokens);
  SendToHost(tokens);
  device_->CloseGate();
  ASSERT_EQ(Restore(tokens), absl::OkStatus());
  Cache(Tokens(kGroupTokens, 1000));
  Cache(Tokens(kGroupTokens, 1000));  // would be written through
  EXPECT_EQ(store_->stats().pinned_blocks, 16);
  device_->OpenGate();
  AllCompletions();
  ExpectAttaches(tokens, kGroupTokens);
}

TEST_F(KvStoreHostTest, ASequenceMayComputeWhatIsOnItsWay) {
  const auto tokens = Tokens(kGroupTokens);
  SendToHost(tokens);
  device_->CloseGate();
  ASSERT_EQ(Restore(tokens), absl::OkStatus());
  Cache(Tokens(24));
  EXPECT_EQ(Match(tokens).device_tokens, 24);
  store_->ClearCache();
  EXPECT_EQ(Match(tokens).device_tokens, 0) << "what was computed is idle";
  Cache(Tokens(24));
  device_->OpenGate();
  EXPECT_EQ(AllCompletions().at(0).blocks, 13);
  ExpectAttaches(tokens, kGroupTokens);
}

TEST_F(KvStoreHostTest, NoRoomOnTheDevice) {
  const auto tokens = Tokens(kGroupTokens);
  SendToHost(tokens);
  BlockTable most(kBlockTokens);
  ASSERT_EQ(store_->Reserve(most, 25 * kBlockTokens), absl::OkStatus());
  EXPECT_EQ(Restore(tokens).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_FALSE(Match(tokens).pending);
  EXPECT_EQ(Match(tokens).host_blocks, 15) << "of at most 127 tokens";
}

TEST_F(KvStoreHostTest, AFailedCopyToTheHostLosesNothing) {
  const auto tokens = Tokens(kGroupTokens);
  device_->FailWith(absl::InternalError("no"));
  Cache(tokens);
  Cache(tokens);
  EXPECT_EQ(AllCompletions().at(0).status.code(), absl::StatusCode::kInternal);
  EXPECT_EQ(store_->stats().host_used_bytes, 0);
  EXPECT_EQ(store_->stats().demoted_blocks, 0);
  ExpectAttaches(tokens, kGroupTokens);
}

TEST_F(KvStoreHostTest, EndsWithCopiesUnderWay) {
  const auto tokens = Tokens(kGroupTokens);
  device_->CloseGate();
  Cache(tokens);
  Cache(tokens);
  EXPECT_EQ(store_->stats().pinned_blocks, 16);
  device_->OpenGate();
  store_.reset();
}

}  // namespace
}  // namespace tandem::kv_store_host_test
