// The area of shared memory in which payloads lie: room, offsets, and what the peer's credit frees.
#include <algorithm>
#include <deque>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "transfer/media/shm/area.h"

namespace tandem::shm_area_test {
namespace {

constexpr size_t kSmallAreaBytes = 1000;
constexpr size_t kPieceBytes = 300;

struct Extent {
  uint64_t handle = 0;
  size_t bytes = 0;
};

class ShmAreaTest : public testing::Test {
 protected:
  // Needs room. The bytes become `mark`.
  Extent Write(size_t bytes, uint8_t mark) {
    const Extent extent = {.handle = area_.Take(bytes), .bytes = bytes};
    std::ranges::fill(area_.At(extent.handle, bytes), std::byte{mark});
    return extent;
  }
  bool Holds(const Extent& extent, uint8_t mark) const {
    return std::ranges::count(area_.At(extent.handle, extent.bytes), std::byte{mark}) ==
           static_cast<ptrdiff_t>(extent.bytes);
  }

  std::vector<std::byte> memory_ = std::vector<std::byte>(kSmallAreaBytes);
  Area area_{memory_, kPieceBytes};
};

// Whatever the sizes, no payload is overwritten before the peer has consumed it, and there is room
// again once it has consumed all.
TEST_F(ShmAreaTest, APayloadStaysUntilItIsConsumed) {
  std::mt19937_64 random(1);
  std::deque<std::pair<Extent, uint8_t>> written;
  uint64_t in_flight = 0;
  uint64_t total = 0;
  uint8_t mark = 0;
  while (total < 200 * kSmallAreaBytes) {
    size_t room = area_.Room();
    ASSERT_TRUE(room > 0 || !written.empty()) << "no room in an empty area";
    ASSERT_LE(room, kSmallAreaBytes);
    while (room > 0 && random() % 4 > 0) {
      const size_t bytes = 1 + random() % std::min(room, kPieceBytes);
      written.emplace_back(Write(bytes, ++mark), mark);
      room -= bytes;
      total += bytes;
      in_flight += bytes;
    }
    for (const auto& [extent, its_mark] : written) ASSERT_TRUE(Holds(extent, its_mark));
    while (!written.empty() && random() % 3 > 0) {
      in_flight -= written.front().first.bytes;
      written.pop_front();
    }
    area_.KeepLatest(in_flight);
  }
}

TEST_F(ShmAreaTest, APieceIsNeverSplitAndNothingLessIsRoom) {
  EXPECT_EQ(area_.Room(), kSmallAreaBytes);
  Write(700, 1);
  Write(100, 2);
  EXPECT_EQ(area_.Room(), 0u) << "200 behind them";
  area_.KeepLatest(100);
  EXPECT_EQ(area_.Room(), 700u) << "at the beginning";
  const Extent third = Write(300, 3);
  EXPECT_EQ(third.handle, 0u);
  EXPECT_TRUE(Holds(third, 3));
  EXPECT_EQ(area_.Room(), 400u);
}

TEST_F(ShmAreaTest, SmallerPayloadsTakeTheEndOfTheArea) {
  Write(700, 1);
  Write(100, 2);
  area_.KeepLatest(100);
  ASSERT_EQ(area_.Room(), 700u);
  EXPECT_EQ(Write(150, 3).handle, 800u);
  EXPECT_EQ(Write(550, 4).handle, 0u) << "all that was room is given";
  EXPECT_EQ(area_.Room(), 0u) << "150 between the payloads, which is no piece";
}

TEST_F(ShmAreaTest, AFullAreaHasNoRoom) {
  Write(500, 1);
  Write(500, 2);
  EXPECT_EQ(area_.Room(), 0u);
  area_.KeepLatest(500);
  EXPECT_EQ(area_.Room(), 500u);
  EXPECT_EQ(Write(500, 3).handle, 0u);
  EXPECT_EQ(area_.Room(), 0u) << "the area is full again, from its middle on";
}

// A credit may end in the middle of a payload, as the receiver counts whole ones but the sender's
// window may have been credited for a frame that came twice.
TEST_F(ShmAreaTest, APayloadThatIsHalfConsumedStays) {
  const Extent first = Write(400, 1);
  Write(400, 2);
  area_.KeepLatest(401);
  EXPECT_EQ(area_.Room(), 0u);
  EXPECT_TRUE(Holds(first, 1));
  area_.KeepLatest(400);
  EXPECT_EQ(area_.Room(), 400u);
}

// An idle connection begins at the start again, where the caches hold the area.
TEST_F(ShmAreaTest, AnEmptyAreaBeginsAtItsStart) {
  Write(400, 1);
  area_.KeepLatest(0);
  EXPECT_EQ(Write(400, 2).handle, 0u);
}

}  // namespace
}  // namespace tandem::shm_area_test
