#include "engine/landing_zone.h"

#include <algorithm>
#include <cstring>
#include <variant>
#include <vector>

#include "base/status.h"
#include "gtest/gtest.h"
#include "kvstore/kv_layout.h"
#include "tests/support/fake_clock.h"

namespace tandem {
namespace {

using absl::StatusCode;

constexpr uint64_t kEpoch = 11;
constexpr ReservationId kId(3);
constexpr int32_t kLayers = 2;

// A zone over a small pool, with one reservation of two blocks, and what a transport does to it.
class LandingZoneTest : public testing::Test {
 protected:
  LandingZoneTest() { zone_.Open(kId, kBlocks, 0); }

  FrameHeader Data(uint32_t layer, uint32_t block) const {
    return {.type = FrameType::kData,
            .stream = kId.value(),
            .epoch = kEpoch,
            .layer = layer,
            .block = block,
            .payload_bytes = static_cast<uint32_t>(layout_.ExtentBytes())};
  }
  FrameHeader CommitOf(uint64_t frames) const {
    return {.type = FrameType::kCommit, .stream = kId.value(), .epoch = kEpoch, .frames = frames};
  }
  StatusCode Prepare(const FrameHeader& header) { return zone_.Prepare(header).status().code(); }

  void Land(uint32_t layer, uint32_t block) {
    const FrameHeader header = Data(layer, block);
    ASSERT_EQ(Prepare(header), StatusCode::kOk);
    zone_.Landed(header, absl::OkStatus());
  }
  void LandAll() {
    for (uint32_t layer = 0; layer < kLayers; ++layer) {
      for (uint32_t block = 0; block < kBlocks.size(); ++block) Land(layer, block);
    }
  }

  // What the engine was told of arrivals since the last call.
  std::vector<StatusCode> Arrivals() {
    std::vector<StatusCode> codes;
    for (const Message& message : inbox_.Drain()) {
      const auto* arrived = std::get_if<KvArrivedMessage>(&message);
      if (arrived == nullptr || arrived->reservation != kId) continue;
      codes.push_back(arrived->status.code());
    }
    return codes;
  }
  int NumDrained() {
    int drained = 0;
    for (const Message& message : inbox_.Drain()) {
      drained += std::holds_alternative<KvDrainedMessage>(message) ? 1 : 0;
    }
    return drained;
  }

  const std::vector<int32_t> kBlocks = {5, 2};
  const KvLayout layout_ = {
      .num_layers = kLayers, .num_kv_heads = 1, .head_dim = 8, .block_tokens = 8};
  std::vector<std::byte> memory_ =
      std::vector<std::byte>(static_cast<size_t>(layout_.BlockBytes()) * 8);
  FakeClock clock_;
  Inbox inbox_{16};
  LandingZone zone_{layout_.PoolView(memory_.data(), 8), kEpoch, clock_, inbox_};
};

TEST_F(LandingZoneTest, NamesThePlaceInThePool) {
  const auto place = zone_.Prepare(Data(1, 0));
  ASSERT_TRUE(place.ok());
  const auto extent = static_cast<size_t>(layout_.ExtentBytes());
  EXPECT_EQ(place->size(), extent);
  EXPECT_EQ(place->data(), memory_.data() + (8 + 5) * extent);  // layer 1, block 5 of 8
}

TEST_F(LandingZoneTest, CommitsWhenAllHasLanded) {
  LandAll();
  EXPECT_TRUE(zone_.Commit(CommitOf(4)).status.ok());
  EXPECT_EQ(Arrivals(), std::vector{StatusCode::kOk});
  EXPECT_EQ(Prepare(Data(0, 0)), StatusCode::kFailedPrecondition);
  EXPECT_EQ(zone_.Commit(CommitOf(4)).status.code(), StatusCode::kFailedPrecondition);
  EXPECT_TRUE(Arrivals().empty());
}

TEST_F(LandingZoneTest, AGapIsDataLoss) {
  Land(0, 0);
  Land(0, 1);
  Land(1, 1);
  EXPECT_EQ(zone_.Commit(CommitOf(3)).status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(Arrivals(), std::vector{StatusCode::kDataLoss});
  EXPECT_EQ(Prepare(Data(1, 0)), StatusCode::kDataLoss) << "what is broken stays broken";
}

TEST_F(LandingZoneTest, AnotherNumberOfFramesIsDataLoss) {
  LandAll();
  EXPECT_EQ(zone_.Commit(CommitOf(5)).status.code(), StatusCode::kDataLoss);
}

TEST_F(LandingZoneTest, ADuplicateMayLandAgain) {
  LandAll();
  Land(1, 0);
  EXPECT_TRUE(zone_.Commit(CommitOf(4)).status.ok());
}

TEST_F(LandingZoneTest, ADuplicateUnderWayMakesItsPlaceUnknown) {
  LandAll();
  ASSERT_EQ(Prepare(Data(1, 0)), StatusCode::kOk);
  EXPECT_EQ(zone_.Commit(CommitOf(4)).status.code(), StatusCode::kDataLoss);
}

TEST_F(LandingZoneTest, APlaceIsWrittenByOneFrameAtATime) {
  ASSERT_EQ(Prepare(Data(0, 1)), StatusCode::kOk);
  EXPECT_EQ(Prepare(Data(0, 1)), StatusCode::kFailedPrecondition);
}

TEST_F(LandingZoneTest, AFrameThatFailsBreaksTheReservation) {
  LandAll();
  ASSERT_EQ(Prepare(Data(0, 0)), StatusCode::kOk);
  ASSERT_EQ(Prepare(Data(0, 1)), StatusCode::kOk);
  zone_.Landed(Data(0, 0), DataLoss("checksum"));
  zone_.Landed(Data(0, 1), Unavailable("connection lost"));
  EXPECT_EQ(Arrivals(), std::vector{StatusCode::kDataLoss}) << "told once, the first reason";
  EXPECT_EQ(zone_.Commit(CommitOf(4)).status.code(), StatusCode::kDataLoss);
  EXPECT_TRUE(Arrivals().empty());
}

TEST_F(LandingZoneTest, RefusesWhatDoesNotFit) {
  FrameHeader other_epoch = Data(0, 0);
  other_epoch.epoch = kEpoch + 1;
  EXPECT_EQ(Prepare(other_epoch), StatusCode::kFailedPrecondition);
  FrameHeader unknown = Data(0, 0);
  unknown.stream = 99;
  EXPECT_EQ(Prepare(unknown), StatusCode::kNotFound);
  EXPECT_EQ(Prepare(Data(kLayers, 0)), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Prepare(Data(0, 2)), StatusCode::kFailedPrecondition);
  FrameHeader shorter = Data(0, 0);
  --shorter.payload_bytes;
  EXPECT_EQ(Prepare(shorter), StatusCode::kFailedPrecondition);
  LandAll();
  EXPECT_TRUE(zone_.Commit(CommitOf(4)).status.ok()) << "what was refused broke nothing";
}

TEST_F(LandingZoneTest, ClosedWithNothingInFlightItIsGoneAtOnce) {
  Land(0, 0);
  EXPECT_EQ(zone_.Close(kId), LandingZone::Closing::kDone);
  EXPECT_EQ(Prepare(Data(0, 1)), StatusCode::kNotFound);
  EXPECT_EQ(zone_.Commit(CommitOf(1)).status.code(), StatusCode::kNotFound);
  EXPECT_EQ(NumDrained(), 0);
}

TEST_F(LandingZoneTest, ClosedUnderAWriteItDrainsFirst) {
  ASSERT_EQ(Prepare(Data(0, 0)), StatusCode::kOk);
  ASSERT_EQ(Prepare(Data(1, 1)), StatusCode::kOk);
  EXPECT_EQ(zone_.Close(kId), LandingZone::Closing::kDraining);
  EXPECT_EQ(Prepare(Data(0, 1)), StatusCode::kNotFound);
  zone_.Landed(Data(0, 0), absl::OkStatus());
  EXPECT_EQ(NumDrained(), 0);
  zone_.Landed(Data(1, 1), Unavailable("connection lost"));
  EXPECT_EQ(NumDrained(), 1);
}

TEST_F(LandingZoneTest, FramesMoveTheTimeOfTheLatest) {
  const TimePoint opened = clock_.Now();
  clock_.Advance(std::chrono::seconds(1));
  EXPECT_EQ(zone_.LatestFrame(kId), opened);
  ASSERT_EQ(Prepare(Data(0, 0)), StatusCode::kOk);
  EXPECT_EQ(zone_.LatestFrame(kId), clock_.Now());
  clock_.Advance(std::chrono::seconds(1));
  zone_.Landed(Data(0, 0), absl::OkStatus());
  EXPECT_EQ(zone_.LatestFrame(kId), clock_.Now());
}

}  // namespace
}  // namespace tandem
