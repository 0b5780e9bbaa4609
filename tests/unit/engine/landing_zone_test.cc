#include "engine/handoff/landing_zone.h"

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <thread>
#include <utility>
#include <variant>
#include <vector>

#include "base/status.h"
#include "gtest/gtest.h"
#include "kernels/registry.h"
#include "kvstore/kv_convert.h"
#include "kvstore/kv_layout.h"
#include "tests/support/fake_clock.h"
#include "tests/support/forwarding_device.h"

namespace tandem::landing_zone_test {
namespace {

using absl::StatusCode;

constexpr uint64_t kEpoch = 11;
constexpr ReservationId kId(3);
constexpr int32_t kLayers = 2;
constexpr Duration kLease = std::chrono::seconds(3);

// The CPU. Whoever waits for one of its streams finds out what happens meanwhile.
class WatchedDevice final : public ForwardingDevice {
 public:
  explicit WatchedDevice(Device& device) : ForwardingDevice(device) {}

  int num_waits = 0;
  absl::Status answer;
  std::function<void()> meanwhile = [] {};  // the next time

 private:
  class WatchedStream final : public ForwardingStream {
   public:
    WatchedStream(WatchedDevice& device, std::unique_ptr<Stream> stream)
        : ForwardingStream(std::move(stream)), device_(device) {}
    absl::Status Synchronize() override {
      ++device_.num_waits;
      std::exchange(device_.meanwhile, [] {})();
      return device_.answer;
    }

   private:
    WatchedDevice& device_;
  };

  std::unique_ptr<Stream> MakeStream(std::unique_ptr<Stream> stream) override {
    return std::make_unique<WatchedStream>(*this, std::move(stream));
  }
};

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

  LandingZone::Conversion TwoSlots() {
    return {.slots = *ConversionSlots::Create(device_, 2, LargestExtentBytesTo(layout_)),
            .converter = *KvConverter::Create(device_, *backend_.ops, layout_, pool_)};
  }

  const std::vector<int32_t> kBlocks = {5, 2};
  const KvLayout layout_ = {
      .num_layers = kLayers, .num_kv_heads = 1, .head_dim = 8, .block_tokens = 8};
  std::vector<std::byte> memory_ =
      std::vector<std::byte>(static_cast<size_t>(layout_.BlockBytes()) * 8);
  const KvPoolView pool_ = layout_.PoolView(memory_.data(), 8);
  const Backend backend_ = *OpenBackend("cpu", {.num_threads = 1});
  WatchedDevice device_{*backend_.device};
  FakeClock clock_;
  Inbox inbox_{16};
  LandingZone zone_{
      {.layout = layout_, .epoch = kEpoch, .lease = kLease}, pool_, TwoSlots(), clock_, inbox_};
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
