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
constexpr Duration kLease = std::chrono::seconds(3);

// A zone over a small pool, with one reservation of two blocks, and what a transport does to it.
class LandingZoneTest : public testing::Test {
 protected:
  LandingZoneTest() {
    zone_.Open(kId, {.blocks = kBlocks, .layout = layout_, .prompt_tokens = 16});
  }

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
  bool Acknowledged(uint64_t frames) {
    const CommitAnswer answer = zone_.Commit(CommitOf(frames));
    return answer.status.ok() && answer.missing.empty();
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
  LandingZone zone_{{.layout = layout_, .epoch = kEpoch, .lease = kLease, .conversion_slots = 2},
                    layout_.PoolView(memory_.data(), 8),
                    clock_,
                    inbox_};
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
  EXPECT_EQ(Prepare(Data(0, 1)), StatusCode::kAlreadyExists) << "that one alone is dropped";
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
  EXPECT_EQ(Prepare(Data(kLayers, 0)), StatusCode::kFailedPrecondition);
  EXPECT_EQ(Prepare(Data(0, 2)), StatusCode::kFailedPrecondition);
  FrameHeader shorter = Data(0, 0);
  --shorter.payload_bytes;
  EXPECT_EQ(Prepare(shorter), StatusCode::kFailedPrecondition);
  LandAll();
  EXPECT_TRUE(Acknowledged(4)) << "what was refused broke nothing";
}

TEST_F(LandingZoneTest, CachedBlocksAreNeitherAwaitedNorWritten) {
  constexpr ReservationId kNext(4);
  zone_.Open(kNext,
             {.blocks = kBlocks, .layout = layout_, .prompt_tokens = 16, .cached_tokens = 8});
  FrameHeader header = Data(0, 0);
  header.stream = kNext.value();
  EXPECT_EQ(Prepare(header), StatusCode::kFailedPrecondition);
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

// Frames of blocks of 16 tokens for a pool of blocks of 8.
class ConvertingZoneTest : public LandingZoneTest {
 protected:
  static constexpr ReservationId kWide{4};

  ConvertingZoneTest() {
    theirs_.block_tokens = 16;
    zone_.Open(
        kWide,
        {.blocks = {1, 3, 6, 0}, .layout = theirs_, .prompt_tokens = 27, .cached_tokens = 8});
  }
  FrameHeader Wide(uint32_t layer, uint32_t block) const {
    FrameHeader header = Data(layer, block);
    header.stream = kWide.value();
    header.payload_bytes = static_cast<uint32_t>(theirs_.ExtentBytes());
    return header;
  }
  absl::StatusOr<std::span<std::byte>> Begin(uint32_t layer, uint32_t block) {
    return zone_.Prepare(Wide(layer, block));
  }
  // Token `token` of K or V of the pool's block.
  const std::byte* Token(int32_t layer, int32_t block, int32_t plane, int32_t token) const {
    return memory_.data() + (int64_t{layer} * 8 + block) * layout_.ExtentBytes() +
           (plane * 8 + token) * 16;
  }

  KvLayout theirs_ = layout_;
};

TEST_F(ConvertingZoneTest, VerifiedTokensComeToTheirPlacesAndNothingElseChanges) {
  for (uint32_t layer = 0; layer < kLayers; ++layer) {
    for (uint32_t block = 0; block < 2; ++block) {
      const auto place = Begin(layer, block);
      ASSERT_TRUE(place.ok()) << place.status();
      for (size_t i = 0; i < place->size(); ++i) {
        const size_t token = i / 16 % 16 + block * 16;
        (*place)[i] = static_cast<std::byte>(1 + token + 64 * layer);
      }
      zone_.Landed(Wide(layer, block), absl::OkStatus());
    }
  }
  FrameHeader commit = CommitOf(4);
  commit.stream = kWide.value();
  const CommitAnswer answer = zone_.Commit(commit);
  EXPECT_TRUE(answer.status.ok() && answer.missing.empty());
  const std::vector<int32_t> blocks = {1, 3, 6, 0};
  for (int32_t layer = 0; layer < kLayers; ++layer) {
    for (int32_t token = 0; token < 32; ++token) {
      const bool written = token >= 8 && token < 27;
      for (const int32_t plane : {0, 1}) {
        EXPECT_EQ(*Token(layer, blocks[static_cast<size_t>(token / 8)], plane, token % 8),
                  written ? static_cast<std::byte>(1 + token + 64 * layer) : std::byte{0})
            << "layer " << layer << " token " << token;
      }
    }
  }
}

TEST_F(ConvertingZoneTest, WhatIsNotVerifiedNeverTouchesThePool) {
  const auto place = Begin(0, 0);
  ASSERT_TRUE(place.ok());
  std::fill(place->begin(), place->end(), std::byte{0xff});
  zone_.Landed(Wide(0, 0), DataLoss("checksum"));
  EXPECT_TRUE(
      std::all_of(memory_.begin(), memory_.end(), [](std::byte b) { return b == std::byte{0}; }));
}

TEST_F(ConvertingZoneTest, WithoutASlotAFrameIsDroppedAndMissing) {
  ASSERT_TRUE(Begin(0, 0).ok());
  ASSERT_TRUE(Begin(0, 1).ok());
  EXPECT_EQ(Begin(1, 0).status().code(), StatusCode::kAlreadyExists);
  zone_.Landed(Wide(0, 0), absl::OkStatus());
  ASSERT_TRUE(Begin(1, 1).ok()) << "its slot is free again";
  zone_.Landed(Wide(0, 1), Unavailable("connection lost"));
  zone_.Landed(Wide(1, 1), absl::OkStatus());
  FrameHeader commit = CommitOf(4);
  commit.stream = kWide.value();
  EXPECT_EQ(zone_.Commit(commit).missing,
            (std::vector<MissingExtent>{{.layer = 0, .block = 1}, {.layer = 1, .block = 0}}));
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
}  // namespace tandem
