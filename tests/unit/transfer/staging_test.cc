// Page-locked slots, who gets them, and when what came has landed.
#include "transfer/framed/staging.h"

#include <memory>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/late_device.h"
#include "tests/support/transport_probe.h"
#include "transfer/framed/staged_payloads.h"

namespace tandem::staging_test {
namespace {

using Kind = ReceiverProbe::Call::Kind;
using ::testing::HasSubstr;

constexpr size_t kPieceBytes = 3000;
constexpr size_t kSlotBytes = 4096;  // whole pages

std::unique_ptr<StagingPool> NewPool(Device& device, size_t slots) {
  auto pool = StagingPool::Create(device, kPieceBytes, slots * kSlotBytes);
  EXPECT_TRUE(pool.ok()) << pool.status();
  return *std::move(pool);
}

TEST(StagingPoolTest, SlotsAreApartAndComeBack) {
  LateDevice device;
  const auto pool = NewPool(device, 3);
  EXPECT_EQ(pool->slots().size_bytes(), 3 * kSlotBytes);
  std::vector<MemorySlot> slots;
  for (int i = 0; i < 3; ++i) {
    slots.push_back(pool->slots().Take());
    ASSERT_TRUE(slots.back());
    EXPECT_EQ(slots.back().bytes().size(), kSlotBytes);
    std::ranges::fill(slots.back().bytes(), static_cast<std::byte>(i));
  }
  for (int i = 0; i < 3; ++i) {
    EXPECT_THAT(slots[i].bytes(), ::testing::Each(static_cast<std::byte>(i)));
  }
  EXPECT_FALSE(pool->slots().Take());
  slots.pop_back();
  EXPECT_EQ(pool->slots().num_free(), 1u);
  MemorySlot moved = std::move(slots.back());
  slots.clear();
  EXPECT_EQ(pool->slots().num_free(), 2u);
  EXPECT_TRUE(moved);
}

TEST(StagingPoolTest, RoomForFewerThanTwoPayloadsIsRefused) {
  LateDevice device;
  for (const auto& [payload_bytes, total_bytes] :
       {std::pair<size_t, size_t>{0, 1 << 20}, {kPieceBytes, 2 * kSlotBytes - 1}}) {
    const absl::Status status = StagingPool::Create(device, payload_bytes, total_bytes).status();
    EXPECT_TRUE(absl::IsInvalidArgument(status)) << status;
  }
  EXPECT_EQ(device.host_allocations(), 0);
}

TEST(StagingPoolTest, AFailureNamesTheDeviceAndIsNoFaultOfAPeers) {
  LateDevice device;
  const auto pool = NewPool(device, 2);
  const MemorySlot slot = pool->slots().Take();
  const std::vector<std::byte> source(kPieceBytes);
  for (const auto failure : {LateDevice::Failure::kCopy, LateDevice::Failure::kSynchronize}) {
    device.Fail(failure);
    absl::Status status = pool->Copy(slot.bytes().first(kPieceBytes), source);
    if (status.ok()) status = pool->Synchronize();
    EXPECT_TRUE(absl::IsUnavailable(status));
    EXPECT_THAT(std::string(status.message()), HasSubstr("late:0"));
    EXPECT_THAT(std::string(status.message()), HasSubstr("fell off the bus"));
  }
}

class OutboundStagingTest : public testing::Test {
 protected:
  // How many slots a connection gets that asks until it gets none.
  size_t TakeAll(OutboundStaging& staging, uint64_t id) {
    const size_t before = held_.size();
    size_t own = 0;
    while (MemorySlot slot = staging.Take(id, own)) {
      held_.push_back(std::move(slot));
      ++own;
    }
    return held_.size() - before;
  }

  LateDevice device_;
  std::vector<std::unique_ptr<OutboundStaging>> stagings_;
  OutboundStaging& New(size_t slots) {
    return *stagings_.emplace_back(std::make_unique<OutboundStaging>(NewPool(device_, slots)));
  }
  std::vector<MemorySlot> held_;
};

// Peers that do not read take at most half of what is left, each.
TEST_F(OutboundStagingTest, WhoHoldsManyLeavesOthersTheirs) {
  OutboundStaging& staging = New(8);
  EXPECT_EQ(TakeAll(staging, 1), 4u);
  EXPECT_EQ(TakeAll(staging, 2), 2u);
  for (uint64_t id = 3; id <= 4; ++id) EXPECT_EQ(TakeAll(staging, id), 1u) << id;
  EXPECT_FALSE(staging.has_turn()) << "those that hold some do not wait";
  EXPECT_EQ(TakeAll(staging, 5), 0u);
  held_.pop_back();
  EXPECT_EQ(staging.BeginTurn(), 5u);
}

TEST_F(OutboundStagingTest, ThoseThatWaitAreServedInOrderAndNotPassed) {
  OutboundStaging& staging = New(2);
  EXPECT_EQ(TakeAll(staging, 1), 1u);
  EXPECT_EQ(TakeAll(staging, 2), 1u);
  EXPECT_FALSE(staging.Take(3, 0));
  EXPECT_FALSE(staging.Take(4, 0));
  EXPECT_FALSE(staging.Take(3, 0)) << "asks again, waits once";
  EXPECT_FALSE(staging.has_turn());
  EXPECT_EQ(staging.BeginTurn(), std::nullopt);
  held_.pop_back();
  EXPECT_TRUE(staging.has_turn());
  EXPECT_FALSE(staging.Take(2, 0)) << "it comes after those that wait";
  EXPECT_EQ(staging.BeginTurn(), 3u);
  EXPECT_EQ(TakeAll(staging, 3), 1u);
  staging.EndTurn();
  EXPECT_FALSE(staging.has_turn());
  staging.Forget(4);
  held_.clear();
  EXPECT_EQ(staging.BeginTurn(), 2u);
  staging.EndTurn();  // it had nothing to send any more
  EXPECT_FALSE(staging.has_turn());
  EXPECT_TRUE(staging.Take(9, 0));
}

class StagedLandingsTest : public testing::Test {
 protected:
  static FrameHeader Header(uint32_t block) {
    return {.stream = 1, .block = block, .payload_bytes = kPieceBytes};
  }
  // As when a payload has come whole.
  void Queue(uint32_t block) {
    const auto place = receiver_.Prepare(Header(block));
    auto slot = landings_.Take();
    ASSERT_TRUE(slot.ok() && *slot) << slot.status();
    std::ranges::copy(PatternBytes(kPieceBytes, block), slot->bytes().begin());
    landings_.Queue(Header(block), *std::move(slot), *place);
  }
  int CountLanded(bool ok) const {
    int count = 0;
    for (const auto& call : receiver_.CallsOf(1)) {
      count += call.kind == Kind::kLanded && call.status.ok() == ok;
    }
    return count;
  }

  LateDevice device_;
  ReceiverProbe receiver_;
  StagedLandings landings_{NewPool(device_, 4), receiver_};
};

TEST_F(StagedLandingsTest, NothingHasLandedBeforeItsCopyIsDone) {
  for (uint32_t block = 0; block < 3; ++block) Queue(block);
  EXPECT_EQ(receiver_.Count(1, Kind::kLanded), 0);
  EXPECT_EQ(landings_.Flush(), absl::OkStatus());
  EXPECT_EQ(CountLanded(true), 3);
  for (uint32_t block = 0; block < 3; ++block) {
    EXPECT_EQ(receiver_.BytesOf(1, 0, block), PatternBytes(kPieceBytes, block));
  }
  EXPECT_EQ(landings_.pool().slots().num_free(), 4u);
  EXPECT_EQ(landings_.Flush(), absl::OkStatus());
  EXPECT_EQ(CountLanded(true), 3) << "each is told of once";
}

TEST_F(StagedLandingsTest, ASlotIsFoundAmongThoseThatAreQueued) {
  for (uint32_t block = 0; block < 4; ++block) Queue(block);
  EXPECT_EQ(CountLanded(true), 0);
  Queue(4);
  EXPECT_EQ(CountLanded(true), 4);
  std::vector<MemorySlot> half_read;
  for (int i = 0; i < 4; ++i) half_read.push_back(*landings_.Take());
  EXPECT_FALSE(*landings_.Take());
}

TEST_F(StagedLandingsTest, NothingHasLandedWhenACopyFailed) {
  for (const auto failure : {LateDevice::Failure::kCopy, LateDevice::Failure::kSynchronize}) {
    Queue(0);
    device_.Fail(failure);
    Queue(1);
    EXPECT_TRUE(absl::IsUnavailable(landings_.Flush()));
    device_.Fail(LateDevice::Failure::kNone);
    EXPECT_EQ(landings_.Flush(), absl::OkStatus());
    EXPECT_EQ(landings_.pool().slots().num_free(), 4u);
  }
  EXPECT_EQ(CountLanded(false), 4);
  EXPECT_EQ(CountLanded(true), 0);
  Queue(2);
  EXPECT_EQ(landings_.Flush(), absl::OkStatus());
  EXPECT_EQ(CountLanded(true), 1);
}

}  // namespace
}  // namespace tandem::staging_test
