// Cached prefixes that lie encoded on the host, and come back.
#include <span>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/kvstore/kv_store_host_fixture.h"

namespace tandem::kv_store_host_codec_test {
namespace {

using kv_store_host::kGroupTokens;
using kv_store_host::KvStoreHostTest;

class KvStoreCodecTest : public KvStoreHostTest, public testing::WithParamInterface<CodecId> {
 protected:
  void SetUp() override {
    layout_.num_kv_heads = 2;
    layout_.head_dim = 64;
    Open({.num_blocks = 40, .host_bytes = 1 << 20, .host_codec = GetParam()});
    ClearPool();
  }
  // Most bytes of a block are not written below, and a device's memory holds anything at first.
  void ClearPool() {
    const std::vector<std::byte> zeros(static_cast<size_t>(layout_.ExtentBytes()));
    for (int32_t layer = 0; layer < layout_.num_layers; ++layer) {
      for (int32_t block = 0; block < 40; ++block) {
        const std::span extent(store_->view().Extent(layer, block), zeros.size());
        ASSERT_EQ(stream_->Copy(extent, zeros), absl::OkStatus());
      }
    }
    ASSERT_EQ(stream_->Synchronize(), absl::OkStatus());
  }
  // The first KV that leaves for the host is used up for the codec's tables.
  void MakeTables() {
    for (int32_t i = 0; i < kStoreBlocksForTables; ++i) {
      SendToHost(Tokens(kGroupTokens, 1000 * (i + 1)));
    }
  }

  static constexpr int32_t kStoreBlocksForTables = 8;
};

TEST_P(KvStoreCodecTest, TheFirstKvIsNotKeptAndWhatFollowsComesBack) {
  MakeTables();
  EXPECT_EQ(store_->stats().host_prefix_blocks, 0);
  EXPECT_EQ(store_->stats().host_unfit_blocks, kStoreBlocksForTables * 16);
  EXPECT_EQ(store_->stats().host_used_bytes, 0);
  const auto tokens = Tokens(kGroupTokens + 24);
  SendToHost(tokens);
  const KvStats stats = store_->stats();
  EXPECT_EQ(stats.host_prefix_blocks, 16);
  EXPECT_EQ(stats.host_raw_bytes, 16 * layout_.BlockBytes());
  EXPECT_LT(stats.host_stored_bytes, stats.host_raw_bytes);
  EXPECT_LT(stats.host_used_bytes, stats.host_raw_bytes);
  ASSERT_EQ(Restore(tokens), absl::OkStatus());
  EXPECT_EQ(AllCompletions().at(0).status, absl::OkStatus());
  ExpectAttaches(tokens, kGroupTokens);
}

TEST_P(KvStoreCodecTest, APartOfAStoreBlockComesBackToItsPlace) {
  MakeTables();
  const auto tokens = Tokens(kGroupTokens);
  SendToHost(tokens);
  Cache(Tokens(20));  // two blocks of it are computed again
  ASSERT_EQ(Restore(tokens), absl::OkStatus());
  EXPECT_EQ(AllCompletions().at(0).blocks, 14);
  ExpectAttaches(tokens, kGroupTokens);
}

// Swapped sequences lie raw, and so need no tables.
TEST_P(KvStoreCodecTest, WhatIsSwappedComesBack) {
  const auto tokens = Tokens(300);
  std::vector<BlockTable> tables;
  tables.emplace_back(kBlockTokens);
  Compute(tables.front(), tokens);
  const absl::StatusOr<SwapId> swap = store_->SwapOut(tables);
  ASSERT_TRUE(swap.ok()) << swap.status();
  EXPECT_EQ(NextCompletions().at(0).status, absl::OkStatus());
  EXPECT_EQ(store_->stats().host_stored_bytes, 0);
  ASSERT_EQ(store_->SwapIn(*swap), absl::OkStatus());
  EXPECT_EQ(NextCompletions().at(0).status, absl::OkStatus());
  tables = store_->TakeSwapped(*swap);
  ExpectHolds(tables.front(), tokens, 300);
}

INSTANTIATE_TEST_SUITE_P(Codecs, KvStoreCodecTest,
                         testing::Values(CodecId::kF3, CodecId::kMaskRice), [](const auto& info) {
                           return info.param == CodecId::kF3 ? "f3" : "mask_rice";
                         });

}  // namespace
}  // namespace tandem::kv_store_host_codec_test
