#include "kvstore/block_table.h"

#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::block_table_test {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

constexpr int32_t kTokensPerBlock = 8;

class BlockTableTest : public ::testing::Test {
 protected:
  BlockPool pool_{6};
  BlockTable table_{kTokensPerBlock};
};

TEST_F(BlockTableTest, ReservesWhatIsMissing) {
  ASSERT_EQ(table_.Reserve(pool_, 9), absl::OkStatus());
  EXPECT_EQ(table_.num_blocks(), 2);
  EXPECT_EQ(table_.capacity_tokens(), 16);
  ASSERT_EQ(table_.Reserve(pool_, 16), absl::OkStatus());
  EXPECT_EQ(table_.num_blocks(), 2);
  ASSERT_EQ(table_.Reserve(pool_, 17), absl::OkStatus());
  EXPECT_THAT(table_.block_ids(), ElementsAre(0, 1, 2));
}

TEST_F(BlockTableTest, ReservesAllOrNothing) {
  ASSERT_EQ(table_.Reserve(pool_, 16), absl::OkStatus());
  EXPECT_EQ(table_.Reserve(pool_, 7 * kTokensPerBlock).code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(table_.num_blocks(), 2);
  EXPECT_EQ(pool_.num_free(), 4);
}

TEST_F(BlockTableTest, SlotFollowsTheTable) {
  BlockTable other(kTokensPerBlock);
  ASSERT_EQ(table_.Reserve(pool_, 8), absl::OkStatus());
  ASSERT_EQ(other.Reserve(pool_, 8), absl::OkStatus());
  ASSERT_EQ(table_.Reserve(pool_, 16), absl::OkStatus());
  EXPECT_EQ(table_.Slot(0), 0);
  EXPECT_EQ(table_.Slot(7), 7);
  EXPECT_EQ(table_.Slot(8), 2 * kTokensPerBlock);
  EXPECT_EQ(table_.Slot(15), 2 * kTokensPerBlock + 7);
}

TEST_F(BlockTableTest, ForkCostsNoBlockUntilItIsWritten) {
  ASSERT_EQ(table_.Reserve(pool_, 20), absl::OkStatus());
  BlockTable fork = table_.Fork();
  EXPECT_EQ(pool_.num_used(), 3);
  EXPECT_EQ(pool_.num_shared(), 3);
  {
    const auto copies = fork.MakeWritable(pool_, 17, 20);
    ASSERT_TRUE(copies.ok());
    ASSERT_EQ(copies->size(), 1u);
    EXPECT_EQ((*copies)[0].from.id().value(), table_.block_ids()[2]);
    EXPECT_EQ((*copies)[0].to.value(), fork.block_ids()[2]);
    EXPECT_EQ(pool_.count((*copies)[0].from.id()), 2) << "pinned until copied";
  }
  EXPECT_THAT(fork.block_ids(), ElementsAre(0, 1, 3));
  EXPECT_THAT(table_.block_ids(), ElementsAre(0, 1, 2));
  EXPECT_THAT(*table_.MakeWritable(pool_, 17, 20), IsEmpty()) << "nobody shares it any more";
}

TEST_F(BlockTableTest, WritableOnlyWhereAsked) {
  ASSERT_EQ(table_.Reserve(pool_, 24), absl::OkStatus());
  const BlockTable fork = table_.Fork();
  EXPECT_THAT(*table_.MakeWritable(pool_, 8, 8), IsEmpty());
  EXPECT_EQ(table_.MakeWritable(pool_, 7, 9)->size(), 2u);
  EXPECT_THAT(fork.block_ids(), ElementsAre(0, 1, 2));
  EXPECT_EQ(table_.block_ids()[2], 2);
}

TEST_F(BlockTableTest, MakesWritableAllOrNothing) {
  ASSERT_EQ(table_.Reserve(pool_, 40), absl::OkStatus());  // 5 of 6 blocks
  const BlockTable fork = table_.Fork();
  EXPECT_EQ(table_.MakeWritable(pool_, 0, 16).status().code(),
            absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(table_.block_ids(), ElementsAre(0, 1, 2, 3, 4));
  EXPECT_EQ(pool_.num_free(), 1);
}

TEST_F(BlockTableTest, TruncateGivesBackWhatHoldsNothing) {
  ASSERT_EQ(table_.Reserve(pool_, 24), absl::OkStatus());
  table_.Truncate(9);
  EXPECT_EQ(table_.num_blocks(), 2);
  table_.Truncate(100);
  EXPECT_EQ(table_.num_blocks(), 2);
  table_.Truncate(0);
  EXPECT_EQ(pool_.num_used(), 0);
}

TEST_F(BlockTableTest, PinsKeepBlocksAfterTheTable) {
  std::vector<BlockRef> pins;
  {
    BlockTable table(kTokensPerBlock);
    ASSERT_EQ(table.Reserve(pool_, 24), absl::OkStatus());
    pins = table.Pin(1, 3);
  }
  EXPECT_EQ(pool_.num_used(), 2);
  EXPECT_EQ(pins[0].id(), BlockId(1));
  pins.clear();
  EXPECT_EQ(pool_.num_used(), 0);
  EXPECT_EQ(pool_.CheckInvariants(), absl::OkStatus());
}

TEST_F(BlockTableTest, HeldOnlyByTheseTables) {
  std::vector<BlockTable> tables;
  ASSERT_EQ(tables.emplace_back(kTokensPerBlock).Reserve(pool_, 24), absl::OkStatus());
  tables.push_back(tables[0].Fork());
  const BlockRef cached = tables[0].block(2).Share(PinKind::kCache);
  EXPECT_THAT(HeldOnlyBy(pool_, tables), ElementsAre(BlockId(0), BlockId(1), BlockId(2)));
  EXPECT_THAT(HeldOnlyBy(pool_, std::span(tables).first(1)), IsEmpty());
  tables[1].Truncate(8);
  EXPECT_THAT(HeldOnlyBy(pool_, std::span(tables).first(1)), ElementsAre(BlockId(1), BlockId(2)));
}

TEST_F(BlockTableTest, TheLastBlockGoesFirst) {
  {
    BlockTable table(kTokensPerBlock);
    ASSERT_EQ(table.Reserve(pool_, 24), absl::OkStatus());
  }
  EXPECT_EQ(pool_.Allocate()->id(), BlockId(0)) << "the first was freed last";
}

}  // namespace
}  // namespace tandem::block_table_test
