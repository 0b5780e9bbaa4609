#include "kvstore/block_pool.h"

#include <set>
#include <utility>
#include <vector>

#include "gtest/gtest.h"

namespace tandem {
namespace {

TEST(BlockPoolTest, HandsOutEachBlockOnce) {
  BlockPool pool(5);
  std::vector<BlockRef> pins;
  std::set<int32_t> ids;
  while (auto pin = pool.Allocate()) {
    ids.insert(pin->id().value());
    pins.push_back(*std::move(pin));
  }
  EXPECT_EQ(ids, (std::set<int32_t>{0, 1, 2, 3, 4}));
  EXPECT_EQ(pool.num_free(), 0);
  EXPECT_EQ(pool.CheckInvariants(), absl::OkStatus());
  pins.clear();
  EXPECT_EQ(pool.num_free(), 5);
  EXPECT_EQ(pool.CheckInvariants(), absl::OkStatus());
}

TEST(BlockPoolTest, BlockReturnsWithItsLastPin) {
  BlockPool pool(2);
  BlockRef first = *pool.Allocate();
  const BlockId id = first.id();
  EXPECT_FALSE(first.shared());
  BlockRef second = first.Share();
  EXPECT_TRUE(first.shared());
  EXPECT_EQ(pool.num_shared(), 1);
  EXPECT_EQ(pool.count(id), 2);
  first = BlockRef();
  EXPECT_FALSE(second.shared());
  EXPECT_EQ(pool.num_shared(), 0);
  EXPECT_EQ(pool.num_used(), 1);
  second = BlockRef();
  EXPECT_EQ(pool.num_used(), 0);
  EXPECT_EQ(pool.CheckInvariants(), absl::OkStatus());
}

TEST(BlockPoolTest, MovedFromPinHoldsNothing) {
  BlockPool pool(1);
  BlockRef pin = *pool.Allocate();
  const BlockRef other = std::move(pin);
  EXPECT_FALSE(pin.present());  // NOLINT: what a move leaves behind is the subject
  EXPECT_TRUE(other.present());
  EXPECT_EQ(pool.count(other.id()), 1);
}

TEST(BlockPoolTest, WarmestBlockGoesFirst) {
  BlockPool pool(4);
  BlockRef a = *pool.Allocate();
  BlockRef b = *pool.Allocate();
  const BlockId freed = a.id();
  a = BlockRef();
  EXPECT_EQ(pool.Allocate()->id(), freed);
}

TEST(BlockPoolDeathTest, PinThatOutlivesThePoolIsABug) {
  EXPECT_DEATH(
      {
        BlockRef pin;
        BlockPool pool(1);
        pin = *pool.Allocate();
        pool.~BlockPool();
      },
      "");  // what is said goes to the logger
}

}  // namespace
}  // namespace tandem
