// The area of shared memory in which payloads lie: room, places, wake-ups, and another side that
// writes what it likes.
#include <deque>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "transfer/media/shm/area.h"

namespace tandem {
namespace {

constexpr size_t kAreaBytes = 1000;
constexpr size_t kPieceBytes = 300;

struct Extent {
  uint64_t place = 0;
  size_t bytes = 0;
};

class ShmAreaTest : public testing::Test {
 protected:
  // Room was asked for. The bytes become `mark`.
  Extent Write(size_t bytes, uint8_t mark) {
    const Extent extent = {.place = writer_.Take(bytes), .bytes = bytes};
    std::ranges::fill(writer_.At(extent.place, bytes), std::byte{mark});
    return extent;
  }
  bool Holds(const Extent& extent, uint8_t mark) const {
    const auto found = reader_.Find(extent.place, extent.bytes);
    return found.ok() &&
           std::ranges::count(*found, std::byte{mark}) == static_cast<ptrdiff_t>(extent.bytes);
  }
  bool Release(const Extent& extent) { return reader_.Release(extent.place + extent.bytes); }
  bool CanFind(uint64_t place, size_t bytes) const { return reader_.Find(place, bytes).ok(); }

  AreaControl control_{};
  std::vector<std::byte> memory_ = std::vector<std::byte>(kAreaBytes);
  AreaWriter writer_{control_, memory_, kPieceBytes};
  AreaReader reader_{control_, memory_};
};

// Whatever the sizes, nothing is written over what was not released, and there is always room again
// once all was.
TEST_F(ShmAreaTest, WhatWasWrittenStaysUntilItIsReleased) {
  std::mt19937_64 random(1);
  std::deque<std::pair<Extent, uint8_t>> written;
  uint64_t total = 0;
  uint8_t mark = 0;
  while (total < 200 * kAreaBytes) {
    size_t room = *writer_.Room();
    ASSERT_TRUE(room > 0 || !written.empty()) << "no room in an empty area";
    ASSERT_LE(room, kAreaBytes);
    while (room > 0 && random() % 4 > 0) {
      const size_t bytes = 1 + random() % std::min(room, kPieceBytes);
      written.emplace_back(Write(bytes, ++mark), mark);
      room -= bytes;
      total += bytes;
    }
    for (const auto& [extent, its_mark] : written) ASSERT_TRUE(Holds(extent, its_mark));
    while (!written.empty() && random() % 3 > 0) {
      Release(written.front().first);
      written.pop_front();
    }
  }
}

TEST_F(ShmAreaTest, APieceIsNeverSplitAndNothingLessIsRoom) {
  EXPECT_EQ(*writer_.Room(), kAreaBytes);
  const Extent first = Write(800, 1);
  EXPECT_EQ(*writer_.Room(), 0u) << "200 behind it";
  Release(first);
  EXPECT_EQ(*writer_.Room(), 800u) << "from the beginning on";
  const Extent second = Write(300, 2);
  EXPECT_EQ(second.place, kAreaBytes);
  EXPECT_TRUE(Holds(second, 2));
  // What is smaller takes the end of the area all the same.
  EXPECT_EQ(*writer_.Room(), 500u);
}

TEST_F(ShmAreaTest, TheWriterIsWokenWhenThereIsRoomForAPiece) {
  const Extent first = Write(100, 1);
  const Extent second = Write(400, 2);
  const Extent third = Write(400, 3);
  EXPECT_EQ(*writer_.Room(), 0u);
  EXPECT_EQ(writer_.Arm(), SleepChange::kArmed);
  EXPECT_EQ(writer_.Arm(), SleepChange::kNone);
  EXPECT_FALSE(Release(first)) << "100 at the beginning, 100 at the end";
  EXPECT_TRUE(Release(second));
  EXPECT_EQ(*writer_.Room(), 500u);
  EXPECT_FALSE(Release(third)) << "woken already";
  EXPECT_EQ(writer_.Disarm(), SleepChange::kNone);
}

TEST_F(ShmAreaTest, AWriterThatFoundRoomIsNotWoken) {
  const Extent first = Write(800, 1);
  EXPECT_EQ(writer_.Arm(), SleepChange::kArmed);
  EXPECT_EQ(writer_.Disarm(), SleepChange::kDisarmed);
  EXPECT_FALSE(Release(first));
}

TEST_F(ShmAreaTest, APlaceThatTheWriterCannotHaveFilledIsNotFound) {
  const Extent first = Write(300, 1);
  EXPECT_TRUE(CanFind(first.place, first.bytes));
  EXPECT_FALSE(CanFind(0, 0));
  EXPECT_FALSE(CanFind(0, kAreaBytes + 1));
  EXPECT_FALSE(CanFind(900, 101)) << "beyond the end";
  EXPECT_FALSE(CanFind(kAreaBytes, 1)) << "where something else still may lie";
  EXPECT_FALSE(CanFind(~uint64_t{0}, 1));
  EXPECT_FALSE(CanFind(~uint64_t{0} - 100, 200));
  Release(first);
  EXPECT_FALSE(CanFind(first.place, first.bytes)) << "done with";
  EXPECT_TRUE(CanFind(kAreaBytes, 300));
  EXPECT_FALSE(CanFind(kAreaBytes, 301));
}

TEST_F(ShmAreaTest, AReaderThatIsDoneWithWhatNeverWasEndsTheConnection) {
  Write(800, 1);
  control_.released = 801;
  EXPECT_EQ(writer_.Room().status().code(), absl::StatusCode::kFailedPrecondition);
  control_.released = 800;
  EXPECT_EQ(*writer_.Room(), 800u);
  Write(800, 2);
  control_.released = 799;
  EXPECT_EQ(writer_.Room().status().code(), absl::StatusCode::kFailedPrecondition) << "backwards";
}

// Released places only grow, whatever order a peer names them in.
TEST_F(ShmAreaTest, AnEarlierPlaceReleasesNothing) {
  const Extent first = Write(100, 1);
  const Extent second = Write(300, 2);
  Release(second);
  EXPECT_FALSE(Release(first));
  EXPECT_EQ(control_.released, 400u);
}

}  // namespace
}  // namespace tandem
