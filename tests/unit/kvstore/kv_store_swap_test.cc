// Tables that leave the device for the host, and come back.
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/kvstore/kv_store_fixture.h"

namespace tandem::kv_store_swap_test {
namespace {

using ::testing::IsEmpty;

constexpr int64_t kSlabBytes = 3 * 4096;

class KvStoreSwapTest : public KvStoreFixture {
 protected:
  void SetUp() override { Open({.num_blocks = 40, .host_bytes = 3 * kSlabBytes}); }

  void TearDown() override {
    EXPECT_EQ(store_->stats().pinned_blocks, 0);
    KvStoreFixture::TearDown();
  }

  std::vector<BlockTable> OneTable(const std::vector<int32_t>& tokens) {
    std::vector<BlockTable> tables;
    Compute(tables.emplace_back(kBlockTokens), tokens);
    return tables;
  }

  SwapId SwapOut(std::vector<BlockTable> tables) {
    const auto id = store_->SwapOut(tables);
    EXPECT_TRUE(id.ok()) << id.status();
    EXPECT_THAT(tables, IsEmpty());
    return *id;
  }

  KvCompletion Next() {
    const auto completions = NextCompletions();
    EXPECT_EQ(completions.size(), 1u);
    return completions.at(0);
  }
};

TEST_F(KvStoreSwapTest, ComesBackWithOtherBlocks) {
  const auto tokens = Tokens(20 * kBlockTokens - 3);
  std::vector<BlockTable> tables = OneTable(tokens);
  EXPECT_EQ(store_->BlocksToSwapOut(tables), 20);
  const SwapId id = SwapOut(std::move(tables));
  EXPECT_EQ(store_->stats().pinned_blocks, 20);
  const KvCompletion out = Next();
  EXPECT_EQ(out.kind, KvCompletion::Kind::kSwapOut);
  EXPECT_EQ(out.swap, id);
  EXPECT_EQ(out.blocks, 20);
  EXPECT_EQ(out.status, absl::OkStatus());
  EXPECT_EQ(store_->stats().free_blocks, 40);
  EXPECT_EQ(store_->stats().swapped_blocks, 20);
  EXPECT_EQ(store_->stats().host_used_bytes, 2 * kSlabBytes);

  const auto others = OneTable(Tokens(10 * kBlockTokens, 1000));
  EXPECT_EQ(store_->BlocksToSwapIn(id), 20);
  ASSERT_EQ(store_->SwapIn(id), absl::OkStatus());
  const KvCompletion in = Next();
  EXPECT_EQ(in.kind, KvCompletion::Kind::kSwapIn);
  EXPECT_EQ(in.swap, id);
  const auto back = store_->TakeSwapped(id);
  ASSERT_EQ(back.size(), 1u);
  ExpectHolds(back[0], tokens, NumTokens(tokens));
  EXPECT_EQ(store_->stats().host_used_bytes, 0);
  EXPECT_EQ(store_->stats().swapped_out_blocks, 20);
  EXPECT_EQ(store_->stats().swapped_in_blocks, 20);
}

TEST_F(KvStoreSwapTest, ForksAreStillForks) {
  const auto tokens = Tokens(24);
  std::vector<BlockTable> tables = OneTable(tokens);
  tables.push_back(tables[0].Fork());
  auto longer = Tokens(32);
  Compute(tables[1], longer, 20);  // copies the last block, adds one
  EXPECT_EQ(store_->BlocksToSwapOut(tables), 5) << "each distinct one once";
  EXPECT_EQ(store_->BlocksToSwapOut(std::span(tables).first(1)), 1);
  const SwapId id = SwapOut(std::move(tables));
  Next();
  ASSERT_EQ(store_->SwapIn(id), absl::OkStatus());
  Next();
  const auto back = store_->TakeSwapped(id);
  ASSERT_EQ(back.size(), 2u);
  EXPECT_EQ(back[0].block_ids()[1], back[1].block_ids()[1]);
  EXPECT_NE(back[0].block_ids()[2], back[1].block_ids()[2]);
  EXPECT_EQ(store_->stats().shared_blocks, 2);
  ExpectHolds(back[0], tokens, 24);
  ExpectHolds(back[1], longer, 32);
}

TEST_F(KvStoreSwapTest, WhatOthersHoldStays) {
  const auto tokens = Tokens(24);
  std::vector<BlockTable> tables = OneTable(tokens);
  const BlockTable other = tables[0].Fork();
  auto longer = Tokens(40);
  Compute(tables[0], longer, 24);
  const SwapId id = SwapOut(std::move(tables));
  EXPECT_EQ(Next().blocks, 2);
  EXPECT_EQ(store_->stats().free_blocks, 37);
  EXPECT_EQ(store_->stats().shared_blocks, 3) << "the swapped sequence is there still";
  ASSERT_EQ(store_->SwapIn(id), absl::OkStatus());
  Next();
  const auto back = store_->TakeSwapped(id);
  EXPECT_EQ(back[0].block_ids()[2], other.block_ids()[2]);
  ExpectHolds(back[0], longer, 40);
}

TEST_F(KvStoreSwapTest, WhatTheCacheHoldsTooBecomesIdle) {
  const auto tokens = Tokens(24);
  std::vector<BlockTable> tables = OneTable(tokens);
  PrefixKey key = store_->NewKey("");
  store_->Insert(key, tokens, 24, tables[0]);
  EXPECT_EQ(store_->BlocksGivenBack(tables), 3);
  const SwapId id = SwapOut(std::move(tables));
  Next();
  EXPECT_EQ(store_->stats().idle_blocks, 3);
  EXPECT_EQ(store_->AvailableBlocks(), 40);
  ASSERT_EQ(store_->SwapIn(id), absl::OkStatus());
  Next();
  ExpectHolds(store_->TakeSwapped(id)[0], tokens, 24);
}

TEST_F(KvStoreSwapTest, TheHostHasNoRoom) {
  std::vector<BlockTable> first = OneTable(Tokens(17 * kBlockTokens));
  const SwapId id = SwapOut(std::move(first));  // two of three store blocks
  std::vector<BlockTable> second = OneTable(Tokens(17 * kBlockTokens, 1000));
  EXPECT_EQ(store_->BlocksToSwapOut(second), std::nullopt);
  EXPECT_EQ(store_->SwapOut(second).status().code(), absl::StatusCode::kResourceExhausted);
  ASSERT_EQ(second.size(), 1u);
  ExpectHolds(second[0], Tokens(17 * kBlockTokens, 1000), 17 * kBlockTokens);
  Next();
  store_->DropSwapped(id);
  EXPECT_EQ(store_->BlocksToSwapOut(second), 17);
}

TEST_F(KvStoreSwapTest, PrefixesMakeRoomForSequences) {
  for (int32_t i = 0; i < 3; ++i) {
    const auto tokens = Tokens(128, 1000 * i);
    for (int turn = 0; turn < 2; ++turn) Cache(tokens);
    AllCompletions();
  }
  EXPECT_EQ(store_->stats().host_used_bytes, 3 * kSlabBytes);
  EXPECT_EQ(store_->stats().host_dropped_blocks, 0);
  std::vector<BlockTable> tables = OneTable(Tokens(17 * kBlockTokens, 5000));
  const SwapId id = SwapOut(std::move(tables));
  EXPECT_EQ(store_->stats().swapped_blocks, 17);
  EXPECT_EQ(store_->stats().host_prefix_blocks, 16);
  AllCompletions();
  store_->DropSwapped(id);
}

TEST_F(KvStoreSwapTest, TheDeviceHasNoRoom) {
  const SwapId id = SwapOut(OneTable(Tokens(80)));
  Next();
  BlockTable most(kBlockTokens);
  ASSERT_EQ(store_->Reserve(most, 31 * kBlockTokens), absl::OkStatus());
  EXPECT_EQ(store_->SwapIn(id).code(), absl::StatusCode::kResourceExhausted);
  most.Truncate(0);
  ASSERT_EQ(store_->SwapIn(id), absl::OkStatus());
  Next();
  store_->DropSwapped(id);
  EXPECT_EQ(store_->stats().free_blocks, 40);
}

TEST_F(KvStoreSwapTest, DroppedUnderACopyItEndsUnseen) {
  device_->CloseGate();
  const SwapId leaving = SwapOut(OneTable(Tokens(80)));
  store_->DropSwapped(leaving);
  EXPECT_EQ(store_->stats().pinned_blocks, 10) << "under the copy";
  device_->OpenGate();
  EXPECT_THAT(NextCompletions(), IsEmpty());
  EXPECT_EQ(store_->stats().free_blocks, 40);
  EXPECT_EQ(store_->stats().host_used_bytes, 0);

  const SwapId returning = SwapOut(OneTable(Tokens(80)));
  Next();
  device_->CloseGate();
  ASSERT_EQ(store_->SwapIn(returning), absl::OkStatus());
  store_->DropSwapped(returning);
  device_->OpenGate();
  EXPECT_THAT(NextCompletions(), IsEmpty());
  EXPECT_EQ(store_->stats().free_blocks, 40);
  EXPECT_EQ(store_->stats().host_used_bytes, 0);
}

TEST_F(KvStoreSwapTest, DamageIsReported) {
  const SwapId id = SwapOut(OneTable(Tokens(80)));
  Next();
  device_->written().back()[9] ^= std::byte{4};
  ASSERT_EQ(store_->SwapIn(id), absl::OkStatus());
  EXPECT_EQ(Next().status.code(), absl::StatusCode::kDataLoss);
  EXPECT_EQ(store_->stats().free_blocks, 40);
  EXPECT_EQ(store_->stats().swapped_in_blocks, 0);
  store_->DropSwapped(id);
  EXPECT_EQ(store_->stats().host_used_bytes, 0);
}

TEST_F(KvStoreSwapTest, NothingToMoveIsACopyTooAndEnds) {
  std::vector<BlockTable> tables = OneTable(Tokens(24));
  const BlockTable other = tables[0].Fork();
  EXPECT_EQ(store_->BlocksToSwapOut(tables), 0);
  const SwapId id = SwapOut(std::move(tables));
  EXPECT_EQ(Next().blocks, 0);
  ASSERT_EQ(store_->SwapIn(id), absl::OkStatus());
  Next();
  ExpectHolds(store_->TakeSwapped(id)[0], Tokens(24), 24);
}

TEST_F(KvStoreSwapTest, WithoutAHostTier) {
  store_.reset();
  Open({.num_blocks = 8});
  std::vector<BlockTable> tables = OneTable(Tokens(24));
  EXPECT_EQ(store_->BlocksToSwapOut(tables), std::nullopt);
  EXPECT_EQ(store_->SwapOut(tables).status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(store_->Poll(), IsEmpty());
}

}  // namespace
}  // namespace tandem::kv_store_swap_test
