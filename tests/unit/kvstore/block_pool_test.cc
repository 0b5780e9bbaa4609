#include "kvstore/block_pool.h"

#include <set>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::block_pool_test {
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

// Notes what the pool tells, as text.
class ObserverProbe final : public IdleObserver {
 public:
  std::vector<std::string> calls;
  void BecameIdle(BlockId id, PinKind last) override {
    calls.push_back(fmt::format("idle {} by {}", id, static_cast<int>(last)));
  }
  void BecameBusy(BlockId id) override { calls.push_back(fmt::format("busy {}", id)); }
};

TEST(BlockPoolTest, IdleIsWhatOnlyTheCacheHolds) {
  BlockPool pool(2);
  ObserverProbe probe;
  pool.set_observer(&probe);
  BlockRef table = *pool.Allocate();
  BlockRef cache = table.Share(PinKind::kCache);
  EXPECT_EQ(pool.num_cached(), 1);
  EXPECT_EQ(pool.num_idle(), 0);
  EXPECT_EQ(pool.num_shared(), 0) << "by one table";
  table = BlockRef();
  EXPECT_EQ(pool.num_idle(), 1);
  BlockRef copy = cache.Share(PinKind::kCopy);
  EXPECT_EQ(pool.num_idle(), 0);
  EXPECT_EQ(pool.num_copying(), 1);
  EXPECT_EQ(pool.CheckInvariants(), absl::OkStatus());
  copy = BlockRef();
  cache = BlockRef();
  EXPECT_THAT(probe.calls, ::testing::ElementsAre("idle 0 by 0", "busy 0", "idle 0 by 2"));
  EXPECT_EQ(pool.num_free(), 2);
  EXPECT_EQ(pool.CheckInvariants(), absl::OkStatus());
}

TEST(BlockPoolDeathTest, TheCacheHoldsABlockOnce) {
  BlockPool pool(1);
  const BlockRef table = *pool.Allocate();
  const BlockRef cache = table.Share(PinKind::kCache);
  EXPECT_DEATH((void)table.Share(PinKind::kCache), "");
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
}  // namespace tandem::block_pool_test
