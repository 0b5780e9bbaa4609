// What a landing zone takes of a transport: each frame at its place, once, under its lease, and a
// commit when nothing is missing.

#include "engine/handoff/landing_zone.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "base/status.h"
#include "gtest/gtest.h"
#include "tests/unit/engine/landing_zone_fixture.h"

namespace tandem::landing_zone_test {
namespace {

using absl::StatusCode;
using landing_zone::kEpoch;
using landing_zone::kId;
using landing_zone::kLayers;
using landing_zone::kLease;
using landing_zone::LandingZoneTest;

TEST_F(LandingZoneTest, NamesThePlaceInThePool) {
  const auto place = zone_.Prepare(Data(1, 0));
  ASSERT_TRUE(place.ok());
  const auto extent = static_cast<size_t>(layout_.ExtentBytes());
  EXPECT_EQ(place->size(), extent);
  EXPECT_EQ(place->data(), memory_.data() + (8 + 5) * extent);  // layer 1, block 5 of 8
}

TEST_F(LandingZoneTest, CommitsWhenAllHasLanded) {
  LandAll();
  EXPECT_TRUE(Acknowledged(4));
  EXPECT_EQ(Arrivals(), std::vector{StatusCode::kOk});
  EXPECT_EQ(Prepare(Data(0, 0)), StatusCode::kAlreadyExists);
  EXPECT_TRUE(Acknowledged(4)) << "the first acknowledgement may have been lost";
  EXPECT_TRUE(Arrivals().empty());
}

TEST_F(LandingZoneTest, CountsTheBytesThatHaveLanded) {
  const auto all = static_cast<uint64_t>(16 * layout_.BytesPerToken());
  EXPECT_EQ(zone_.LandedBytes(kId), 0);
  Land(0, 0);
  Land(1, 0);
  EXPECT_EQ(zone_.LandedBytes(kId), all / 2);
  ASSERT_EQ(Prepare(Data(1, 0)), StatusCode::kOk);
  EXPECT_EQ(zone_.LandedBytes(kId), all / 4) << "a place that is written again holds nothing";
  zone_.Landed(Data(1, 0), absl::DataLossError("flipped"));
  EXPECT_EQ(zone_.LandedBytes(kId), all / 4);
  LandAll();
  EXPECT_EQ(zone_.LandedBytes(kId), all);
}

TEST_F(LandingZoneTest, AGapIsNamed) {
  Land(0, 0);
  Land(0, 1);
  Land(1, 1);
  const CommitAnswer answer = zone_.Commit(CommitOf(4));
  EXPECT_TRUE(answer.status.ok());
  EXPECT_EQ(answer.missing, (std::vector<MissingExtent>{{.layer = 1, .block = 0}}));
  EXPECT_TRUE(Arrivals().empty());
  Land(1, 0);
  EXPECT_TRUE(Acknowledged(4));
  EXPECT_EQ(Arrivals(), std::vector{StatusCode::kOk});
}

TEST_F(LandingZoneTest, AnotherNumberOfFramesIsDataLoss) {
  LandAll();
  EXPECT_EQ(zone_.Commit(CommitOf(5)).status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(Arrivals(), std::vector{StatusCode::kDataLoss});
  EXPECT_EQ(Prepare(Data(1, 0)), StatusCode::kDataLoss) << "what is broken stays broken";
  EXPECT_EQ(zone_.Commit(CommitOf(4)).status.code(), StatusCode::kDataLoss);
  EXPECT_EQ(zone_.Renewed(kId.value(), kEpoch).code(), StatusCode::kDataLoss);
  EXPECT_TRUE(Arrivals().empty()) << "told once";
}

TEST_F(LandingZoneTest, ADuplicateMayLandAgain) {
  LandAll();
  Land(1, 0);
  EXPECT_TRUE(Acknowledged(4));
}

TEST_F(LandingZoneTest, ADuplicateUnderWayMakesItsPlaceUnknown) {
  LandAll();
  ASSERT_EQ(Prepare(Data(1, 0)), StatusCode::kOk);
  EXPECT_EQ(zone_.Commit(CommitOf(4)).missing,
            (std::vector<MissingExtent>{{.layer = 1, .block = 0}}));
  zone_.Landed(Data(1, 0), DataLoss("checksum"));
  EXPECT_EQ(zone_.Commit(CommitOf(4)).missing.size(), 1u);
}

TEST_F(LandingZoneTest, APlaceIsWrittenByOneFrameAtATime) {
  ASSERT_EQ(Prepare(Data(0, 1)), StatusCode::kOk);
  EXPECT_EQ(Prepare(Data(0, 1)), StatusCode::kAborted) << "that one alone is dropped";
  zone_.Landed(Data(0, 1), absl::OkStatus());
  EXPECT_EQ(Prepare(Data(0, 1)), StatusCode::kOk);
}

TEST_F(LandingZoneTest, AFrameThatFailsIsMissing) {
  LandAll();
  ASSERT_EQ(Prepare(Data(0, 0)), StatusCode::kOk);
  ASSERT_EQ(Prepare(Data(0, 1)), StatusCode::kOk);
  zone_.Landed(Data(0, 0), DataLoss("checksum"));
  zone_.Landed(Data(0, 1), Unavailable("connection lost"));
  EXPECT_EQ(zone_.Commit(CommitOf(4)).missing,
            (std::vector<MissingExtent>{{.layer = 0, .block = 0}, {.layer = 0, .block = 1}}));
  EXPECT_TRUE(Arrivals().empty());
  Land(0, 0);
  Land(0, 1);
  EXPECT_TRUE(Acknowledged(4));
}

TEST_F(LandingZoneTest, RefusesWhatDoesNotFit) {
  FrameHeader other_epoch = Data(0, 0);
  other_epoch.epoch = kEpoch + 1;
  EXPECT_EQ(Prepare(other_epoch), StatusCode::kPermissionDenied);
  FrameHeader never_given_out = Data(0, 0);
  never_given_out.stream = 99;
  EXPECT_EQ(Prepare(never_given_out), StatusCode::kPermissionDenied);
  EXPECT_EQ(Prepare(Data(kLayers, 0)), StatusCode::kPermissionDenied);
  EXPECT_EQ(Prepare(Data(0, 2)), StatusCode::kPermissionDenied);
  for (const int32_t difference : {-1, 1}) {
    FrameHeader other_size = Data(0, 0);
    other_size.payload_bytes += static_cast<uint32_t>(difference);
    EXPECT_EQ(Prepare(other_size), StatusCode::kPermissionDenied);
  }
  LandAll();
  EXPECT_TRUE(Acknowledged(4)) << "what was refused broke nothing";
}

TEST_F(LandingZoneTest, CachedBlocksAreNeitherAwaitedNorWritten) {
  constexpr ReservationId kNext(4);
  zone_.Open(kNext,
             {.blocks = kBlocks, .layout = layout_, .prompt_tokens = 16, .cached_tokens = 8});
  FrameHeader header = Data(0, 0);
  header.stream = kNext.value();
  EXPECT_EQ(Prepare(header), StatusCode::kPermissionDenied);
  FrameHeader commit = CommitOf(2);
  commit.stream = kNext.value();
  EXPECT_EQ(zone_.Commit(commit).missing,
            (std::vector<MissingExtent>{{.layer = 0, .block = 1}, {.layer = 1, .block = 1}}));
}

TEST_F(LandingZoneTest, AfterItsLeaseNothingIsTaken) {
  clock_.Advance(kLease - std::chrono::milliseconds(1));
  EXPECT_TRUE(zone_.Renewed(kId.value(), kEpoch).ok());
  clock_.Advance(kLease - std::chrono::milliseconds(1));
  ASSERT_EQ(Prepare(Data(0, 0)), StatusCode::kOk);
  EXPECT_EQ(zone_.LeaseEnd(kId), clock_.Now() + kLease);
  clock_.Advance(kLease);
  zone_.Landed(Data(0, 0), absl::OkStatus());
  EXPECT_EQ(zone_.LeaseEnd(kId), clock_.Now()) << "what was late prolongs nothing";
  EXPECT_EQ(Prepare(Data(0, 1)), StatusCode::kNotFound);
  EXPECT_EQ(zone_.Renewed(kId.value(), kEpoch).code(), StatusCode::kNotFound);
  EXPECT_EQ(zone_.Commit(CommitOf(4)).status.code(), StatusCode::kNotFound);
}

TEST_F(LandingZoneTest, WhatWasTakenOverIsRemembered) {
  LandAll();
  EXPECT_TRUE(Acknowledged(4));
  EXPECT_EQ(zone_.Close(kId), LandingZone::Closing::kDone);
  EXPECT_EQ(Prepare(Data(0, 0)), StatusCode::kAlreadyExists);
  EXPECT_TRUE(zone_.Renewed(kId.value(), kEpoch).ok());
  EXPECT_TRUE(Acknowledged(4));
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

}  // namespace
}  // namespace tandem::landing_zone_test
