// A landing zone whose frames have another layout than its pool: they are converted before they come
// to their places.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <thread>
#include <vector>

#include "base/status.h"
#include "gtest/gtest.h"
#include "kvstore/kv_layout.h"
#include "tests/unit/engine/landing_zone_fixture.h"

namespace tandem::converting_zone_test {
namespace {

using absl::StatusCode;
using landing_zone::kLayers;
using landing_zone::LandingZoneTest;

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
  void LandWide(uint32_t layer, uint32_t block) {
    const auto place = Begin(layer, block);
    ASSERT_TRUE(place.ok()) << place.status();
    std::fill(place->begin(), place->end(), std::byte{0xff});
    zone_.Landed(Wide(layer, block), absl::OkStatus());
  }
  CommitAnswer CommitWide() {
    FrameHeader commit = CommitOf(4);
    commit.stream = kWide.value();
    return zone_.Commit(commit);
  }
  bool PoolIsUntouched() const {
    return std::ranges::all_of(memory_, [](std::byte b) { return b == std::byte{0}; });
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
  const CommitAnswer answer = CommitWide();
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
  EXPECT_EQ(CommitWide().missing.size(), 4u);
  EXPECT_TRUE(PoolIsUntouched());
}

TEST_F(ConvertingZoneTest, WithoutASlotAFrameIsDroppedAndMissing) {
  ASSERT_TRUE(Begin(0, 0).ok());
  ASSERT_TRUE(Begin(0, 1).ok());
  EXPECT_EQ(Begin(1, 0).status().code(), StatusCode::kAborted);
  zone_.Landed(Wide(0, 0), absl::OkStatus());
  ASSERT_TRUE(Begin(1, 1).ok()) << "its slot is free again";
  zone_.Landed(Wide(0, 1), Unavailable("connection lost"));
  zone_.Landed(Wide(1, 1), absl::OkStatus());
  EXPECT_EQ(CommitWide().missing,
            (std::vector<MissingExtent>{{.layer = 0, .block = 1}, {.layer = 1, .block = 0}}));
}

TEST_F(ConvertingZoneTest, TheDeviceIsWaitedForOncePerLot) {
  for (const uint32_t block : {0, 1}) LandWide(0, block);
  EXPECT_EQ(device_.num_waits, 0) << "nobody needs the slots yet";
  for (const uint32_t block : {0, 1}) LandWide(1, block);
  EXPECT_EQ(device_.num_waits, 1);
  EXPECT_TRUE(CommitWide().missing.empty());
  EXPECT_EQ(device_.num_waits, 2);
}

TEST_F(ConvertingZoneTest, WhatWaitsForItsConversionHasLanded) {
  const auto all = static_cast<uint64_t>((27 - 8) * layout_.BytesPerToken());
  LandWide(0, 0);
  EXPECT_EQ(zone_.LandedBytes(kWide), all / 4);
  EXPECT_EQ(Begin(0, 0).status().code(), StatusCode::kAborted) << "a duplicate";
  for (const uint32_t block : {0, 1}) LandWide(1, block);
  EXPECT_EQ(zone_.LandedBytes(kWide), all * 3 / 4);
}

TEST_F(ConvertingZoneTest, WhatWaitsIsDroppedWithItsReservation) {
  LandWide(0, 0);
  LandWide(0, 1);
  EXPECT_EQ(zone_.Close(kWide), LandingZone::Closing::kDone) << "nothing writes the pool";
  zone_.Open(ReservationId(5), {.blocks = {1, 3}, .layout = theirs_, .prompt_tokens = 16});
  for (const uint32_t layer : {0, 1}) {
    FrameHeader header = Wide(layer, 0);
    header.stream = 5;
    EXPECT_TRUE(zone_.Prepare(header).ok()) << "slots are free again";
  }
  EXPECT_EQ(device_.num_waits, 0);
  EXPECT_TRUE(PoolIsUntouched());
}

TEST_F(ConvertingZoneTest, ClosedUnderAConversionItDrainsFirst) {
  LandWide(0, 0);
  device_.meanwhile = [this] {
    EXPECT_EQ(zone_.Close(kWide), LandingZone::Closing::kDraining);
    EXPECT_EQ(NumDrained(), 0);
  };
  EXPECT_EQ(CommitWide().status.code(), StatusCode::kNotFound);
  EXPECT_EQ(NumDrained(), 1);
}

TEST_F(ConvertingZoneTest, WhatCouldNotBeConvertedIsMissing) {
  LandWide(0, 0);
  device_.answer = absl::InternalError("the device fell off the bus");
  EXPECT_EQ(CommitWide().missing.size(), 4u);
  device_.answer = absl::OkStatus();
  for (const uint32_t layer : {0, 1}) {
    for (const uint32_t block : {0, 1}) LandWide(layer, block);
  }
  EXPECT_TRUE(CommitWide().missing.empty());
}

// Two transports: what one of them is converting is not missing at the other's commit.
TEST_F(ConvertingZoneTest, ACommitWaitsForWhatAnotherThreadConverts) {
  for (const uint32_t layer : {0, 1}) {
    for (const uint32_t block : {0, 1}) LandWide(layer, block);
  }
  std::thread other;
  size_t missing = 9;
  device_.meanwhile = [&] { other = std::thread([&] { missing = CommitWide().missing.size(); }); };
  EXPECT_TRUE(CommitWide().missing.empty());
  other.join();
  EXPECT_EQ(missing, 0u);
}

}  // namespace
}  // namespace tandem::converting_zone_test
