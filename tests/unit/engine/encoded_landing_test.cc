// The landing zone and payloads that come encoded.

#include <algorithm>
#include <memory>
#include <thread>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/status.h"
#include "engine/handoff/landing_zone.h"
#include "engine/handoff/rounding.h"
#include "gtest/gtest.h"
#include "kernels/registry.h"
#include "kvstore/codec/packed_extent.h"
#include "kvstore/codec/rounded.h"
#include "kvstore/kv_convert.h"
#include "tests/support/fake_clock.h"
#include "tests/unit/kvstore/codec/codec_data.h"

namespace tandem::encoded_landing_test {
namespace {

using absl::StatusCode;

constexpr uint64_t kZoneEpoch = 11;
constexpr ReservationId kDirect(3);
constexpr ReservationId kOther(4);  // of a sender whose blocks have 32 tokens
constexpr int32_t kZoneTokens = 25;
constexpr KvLayout kZoneLayout = {
    .num_layers = 2, .num_kv_heads = 2, .head_dim = 64, .block_tokens = 16, .dtype = DType::kBF16};

class EncodedLandingTest : public testing::Test {
 protected:
  explicit EncodedLandingTest(bool with_workers = true) {
    theirs_.block_tokens = 32;
    LandingZone::Conversion conversion = {
        .slots = *ConversionSlots::Create(*backend_.device, 2, LargestExtentBytesTo(kZoneLayout)),
        .converter = *KvConverter::Create(*backend_.device, *backend_.ops, kZoneLayout, pool_)};
    zone_ = std::make_unique<LandingZone>(
        LandingZone::Options{.layout = kZoneLayout,
                             .epoch = kZoneEpoch,
                             .lease = std::chrono::seconds(3),
                             .workers = with_workers ? workers_.get() : nullptr},
        pool_, std::move(conversion), clock_, inbox_);
    reads_ = zone_->Open(kDirect,
                         {.blocks = {5, 2}, .layout = kZoneLayout, .prompt_tokens = kZoneTokens});
    zone_->Open(kOther, {.blocks = {1, 3}, .layout = theirs_, .prompt_tokens = kZoneTokens});
  }
  // The jobs of the workers use the zone.
  ~EncodedLandingTest() override { workers_.reset(); }

  // The KV of a layer of the sequence, as a block of so many tokens.
  std::vector<std::byte> Kv(int32_t layer) const {
    return LikeKv(ShapeOf(kZoneTokens), 50 + static_cast<uint64_t>(layer));
  }
  static ExtentShape ShapeOf(int32_t tokens) { return {DType::kBF16, 2, 64, tokens}; }
  // Tokens of a block of the sequence, as a frame holds them.
  std::vector<std::byte> Tokens(int32_t layer, int32_t begin, int32_t count) const {
    const std::vector<std::byte> all = Kv(layer);
    std::vector<std::byte> tokens(ShapeOf(count).Bytes());
    for (size_t head = 0; head < 4; ++head) {
      const auto from = (head * kZoneTokens + static_cast<size_t>(begin)) * 128;
      const auto bytes = static_cast<size_t>(count) * 128;
      std::copy_n(all.begin() + static_cast<ptrdiff_t>(from), bytes,
                  tokens.begin() + static_cast<ptrdiff_t>(head * bytes));
    }
    return tokens;
  }
  std::vector<std::byte> Frame(int32_t layer, int32_t begin, int32_t count) const {
    std::vector<std::byte> frame(MostFrameBytes(ShapeOf(count)));
    frame.resize(EncodeFrame(codec_.get(), ShapeOf(count), {.layer = layer},
                             Tokens(layer, begin, count), frame)
                     .value_or(0));
    return frame;
  }
  FrameHeader Header(ReservationId id, int32_t layer, int32_t block, PayloadKind kind,
                     size_t bytes) const {
    return {.type = FrameType::kData,
            .stream = id.value(),
            .epoch = kZoneEpoch,
            .layer = static_cast<uint32_t>(layer),
            .block = static_cast<uint32_t>(block),
            .payload_bytes = static_cast<uint32_t>(bytes),
            .kind = kind};
  }
  StatusCode Land(const FrameHeader& header, const std::vector<std::byte>& payload) {
    const auto place = zone_->Prepare(header);
    if (!place.ok()) return place.status().code();
    std::ranges::copy(payload, place->begin());
    zone_->Landed(header, absl::OkStatus());
    return StatusCode::kOk;
  }
  StatusCode LandFrame(ReservationId id, int32_t layer, int32_t block, int32_t begin,
                       int32_t count) {
    const std::vector<std::byte> frame = Frame(layer, begin, count);
    return Land(Header(id, layer, block, PayloadKind::kEncoded, frame.size()), frame);
  }
  StatusCode LandTables(ReservationId id, CodecTables::Use use = CodecTables::Use::kLossless) {
    const std::vector<std::byte> bytes = tables_->Serialize(use);
    return Land(Header(id, 2, 0, PayloadKind::kTables, bytes.size()), bytes);
  }
  void LandAll(ReservationId id) {
    const int32_t block_tokens = id == kOther ? 32 : 16;
    for (int32_t layer = 0; layer < 2; ++layer) {
      for (int32_t begin = 0, block = 0; begin < kZoneTokens; begin += block_tokens, ++block) {
        EXPECT_EQ(LandFrame(id, layer, block, begin, std::min(block_tokens, kZoneTokens - begin)),
                  StatusCode::kOk);
      }
    }
  }
  CommitAnswer Commit(ReservationId id, uint64_t frames) {
    return zone_->Commit(
        {.type = FrameType::kCommit, .stream = id.value(), .epoch = kZoneEpoch, .frames = frames});
  }
  // The tokens of the sequence as they lie in the pool's blocks.
  std::vector<std::byte> InPool(int32_t layer, std::vector<int32_t> blocks) const {
    std::vector<std::byte> all(ShapeOf(kZoneTokens).Bytes());
    for (size_t head = 0; head < 4; ++head) {
      for (size_t token = 0; token < kZoneTokens; ++token) {
        const std::byte* const extent = pool_.Extent(layer, blocks[token / 16]);
        std::copy_n(extent + (head * 16 + token % 16) * 128, 128,
                    all.begin() + static_cast<ptrdiff_t>((head * kZoneTokens + token) * 128));
      }
    }
    return all;
  }
  // The only worker begins nothing before Release.
  void HoldWorker() {
    workers_->Queue([this] { released_.WaitForNotification(); });
  }
  void Release() { released_.Notify(); }

  KvLayout theirs_ = kZoneLayout;
  std::vector<std::byte> memory_ =
      std::vector<std::byte>(static_cast<size_t>(kZoneLayout.BlockBytes()) * 8);
  const KvPoolView pool_ = kZoneLayout.PoolView(memory_.data(), 8);
  const Backend backend_ = *OpenBackend("cpu", {.num_threads = 1});
  std::shared_ptr<const CodecTables> tables_ =
      std::make_shared<const CodecTables>(TablesFor(ShapeOf(16), 2));
  std::unique_ptr<KvCodec> codec_ = NewKvCodec(CodecId::kMaskRice, tables_);
  FakeClock clock_;
  Inbox inbox_{16};
  absl::Notification released_;
  ReadableKv reads_;
  std::unique_ptr<CodecWorkers> workers_ = std::make_unique<CodecWorkers>(1);
  std::unique_ptr<LandingZone> zone_;
};

TEST_F(EncodedLandingTest, FramesAreDecodedIntoThePool) {
  EXPECT_EQ(reads_.tables.size(), 0u);
  EXPECT_TRUE(reads_.Has(CodecId::kRaw) && reads_.Has(CodecId::kMaskRice));
  ASSERT_EQ(LandTables(kDirect), StatusCode::kOk);
  LandAll(kDirect);
  const CommitAnswer answer = Commit(kDirect, 5);
  EXPECT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_TRUE(answer.missing.empty());
  for (const int32_t layer : {0, 1}) EXPECT_EQ(InPool(layer, {5, 2}), Kv(layer)) << layer;
}

TEST_F(EncodedLandingTest, FramesOfAnotherLayoutAreDecodedAndConverted) {
  ASSERT_EQ(LandTables(kOther), StatusCode::kOk);
  LandAll(kOther);
  const CommitAnswer answer = Commit(kOther, 3);
  EXPECT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_TRUE(answer.missing.empty());
  for (const int32_t layer : {0, 1}) EXPECT_EQ(InPool(layer, {1, 3}), Kv(layer)) << layer;
}

TEST_F(EncodedLandingTest, ExtentsAsTheyAreMayComeBetween) {
  ASSERT_EQ(LandTables(kDirect), StatusCode::kOk);
  const std::vector<std::byte> whole = Tokens(0, 0, 16);
  EXPECT_EQ(Land(Header(kDirect, 0, 0, PayloadKind::kExtent, whole.size()), whole),
            StatusCode::kOk);
  EXPECT_EQ(LandFrame(kDirect, 0, 1, 16, 9), StatusCode::kOk);
  EXPECT_EQ(LandFrame(kDirect, 1, 0, 0, 16), StatusCode::kOk);
  EXPECT_EQ(LandFrame(kDirect, 1, 1, 16, 9), StatusCode::kOk);
  EXPECT_TRUE(Commit(kDirect, 5).missing.empty());
  for (const int32_t layer : {0, 1}) EXPECT_EQ(InPool(layer, {5, 2}), Kv(layer)) << layer;
}

TEST_F(EncodedLandingTest, LaterReservationsHaveTheTablesOfEarlierOnes) {
  ASSERT_EQ(LandTables(kDirect), StatusCode::kOk);
  const ReadableKv reads = zone_->Open(
      ReservationId(5), {.blocks = {6, 7}, .layout = kZoneLayout, .prompt_tokens = kZoneTokens});
  EXPECT_TRUE(reads.HasTables(tables_->id()));
  LandAll(ReservationId(5));
  EXPECT_TRUE(Commit(ReservationId(5), 4).missing.empty());
  EXPECT_EQ(InPool(1, {6, 7}), Kv(1));
}

TEST_F(EncodedLandingTest, TablesThatDidNotArriveAreMissingAndSoIsAllThatNeedsThem) {
  LandAll(kDirect);
  const CommitAnswer answer = Commit(kDirect, 5);
  EXPECT_TRUE(answer.status.ok()) << answer.status;
  EXPECT_EQ(answer.missing, (std::vector<MissingExtent>{{.layer = 2, .block = 0},
                                                        {.layer = 0, .block = 0},
                                                        {.layer = 0, .block = 1},
                                                        {.layer = 1, .block = 0},
                                                        {.layer = 1, .block = 1}}));
  ASSERT_EQ(LandTables(kDirect), StatusCode::kOk);
  LandAll(kDirect);
  EXPECT_TRUE(Commit(kDirect, 5).missing.empty());
  EXPECT_EQ(InPool(0, {5, 2}), Kv(0));
}

TEST_F(EncodedLandingTest, TheNumberOfFramesSaysWhetherThereAreTables) {
  ASSERT_EQ(LandTables(kDirect), StatusCode::kOk);
  LandAll(kDirect);
  EXPECT_EQ(Commit(kDirect, 6).status.code(), StatusCode::kDataLoss);
  ASSERT_EQ(LandTables(kOther), StatusCode::kOk);
  LandAll(kOther);
  EXPECT_TRUE(Commit(kOther, 2).missing.empty()) << "an opening of the stream that needs none";
}

// A hash over the wire says that the bytes are those that were sent; these were damaged before.
TEST_F(EncodedLandingTest, AFrameThatIsNotDecodedIsMissingAndLeavesOthersAlone) {
  ASSERT_EQ(LandTables(kDirect), StatusCode::kOk);
  LandAll(kDirect);
  std::vector<std::byte> frame = Frame(1, 0, 16);
  frame[frame.size() / 2] ^= std::byte{4};
  EXPECT_EQ(Land(Header(kDirect, 1, 0, PayloadKind::kEncoded, frame.size()), frame),
            StatusCode::kOk);
  EXPECT_EQ(Commit(kDirect, 5).missing, (std::vector<MissingExtent>{{.layer = 1, .block = 0}}));
  EXPECT_EQ(LandFrame(kDirect, 1, 0, 0, 16), StatusCode::kOk);
  EXPECT_TRUE(Commit(kDirect, 5).missing.empty());
}

TEST_F(EncodedLandingTest, AFrameOfOtherTokensThanTheBlockHasIsMissing) {
  ASSERT_EQ(LandTables(kDirect), StatusCode::kOk);
  LandAll(kDirect);
  EXPECT_EQ(LandFrame(kDirect, 0, 1, 15, 10), StatusCode::kOk);
  EXPECT_EQ(Commit(kDirect, 5).missing, (std::vector<MissingExtent>{{.layer = 0, .block = 1}}));
}

TEST_F(EncodedLandingTest, PayloadsThatNoHonestSenderSendsAreRefused) {
  const auto code = [&](const FrameHeader& header) {
    return zone_->Prepare(header).status().code();
  };
  const auto extent = static_cast<size_t>(kZoneLayout.ExtentBytes());
  EXPECT_EQ(code(Header(kDirect, 0, 0, PayloadKind::kEncoded, extent + 1)),
            StatusCode::kPermissionDenied);
  EXPECT_EQ(code(Header(kDirect, 0, 0, PayloadKind::kExtent, extent - 1)),
            StatusCode::kPermissionDenied);
  EXPECT_EQ(code(Header(kDirect, 2, 0, PayloadKind::kEncoded, 100)), StatusCode::kPermissionDenied);
  const size_t tables = tables_->Serialize(CodecTables::Use::kLossless).size();
  EXPECT_EQ(code(Header(kDirect, 2, 0, PayloadKind::kTables, tables - 1)),
            StatusCode::kPermissionDenied);
  EXPECT_EQ(code(Header(kDirect, 1, 0, PayloadKind::kTables, tables)),
            StatusCode::kPermissionDenied);
  EXPECT_EQ(code(Header(kDirect, 2, 1, PayloadKind::kTables, tables)),
            StatusCode::kPermissionDenied);
}

// A sender that rounds KV although its request allows no loss.
TEST_F(EncodedLandingTest, RoundedKvIsDecodedOnlyWhereItsClassAllowsIt) {
  const ReadableKv reads = zone_->Open(ReservationId(5), {.blocks = {6, 7},
                                                          .layout = kZoneLayout,
                                                          .prompt_tokens = kZoneTokens,
                                                          .quality = KvQuality::kNear});
  EXPECT_TRUE(reads.Has(CodecId::kRounded));
  EXPECT_FALSE(reads_.Has(CodecId::kRounded));
  codec_ = NewRoundedCodec(tables_, RoundingOf(KvQuality::kNear).step);
  ASSERT_EQ(LandTables(ReservationId(5), CodecTables::Use::kRounding), StatusCode::kOk);
  LandAll(ReservationId(5));
  EXPECT_TRUE(Commit(ReservationId(5), 5).missing.empty());
  ASSERT_EQ(LandTables(kDirect, CodecTables::Use::kRounding), StatusCode::kOk);
  LandAll(kDirect);
  EXPECT_EQ(Commit(kDirect, 5).missing.size(), 4u);
}

TEST_F(EncodedLandingTest, TablesThatAreNoneAreMissing) {
  std::vector<std::byte> bytes = tables_->Serialize(CodecTables::Use::kLossless);
  bytes[0] ^= std::byte{1};
  EXPECT_EQ(Land(Header(kDirect, 2, 0, PayloadKind::kTables, bytes.size()), bytes),
            StatusCode::kOk);
  EXPECT_EQ(Commit(kDirect, 5).missing.front(), (MissingExtent{.layer = 2, .block = 0}));
}

// There are two slots: the third frame waits until the worker has decoded one.
TEST_F(EncodedLandingTest, AFrameWaitsForASlotThatTheWorkersHave) {
  ASSERT_EQ(LandTables(kDirect), StatusCode::kOk);
  HoldWorker();
  EXPECT_EQ(LandFrame(kDirect, 0, 0, 0, 16), StatusCode::kOk);
  EXPECT_EQ(LandFrame(kDirect, 0, 1, 16, 9), StatusCode::kOk);
  std::thread later([this] { Release(); });
  EXPECT_EQ(LandFrame(kDirect, 1, 0, 0, 16), StatusCode::kOk);
  EXPECT_EQ(LandFrame(kDirect, 1, 1, 16, 9), StatusCode::kOk);
  later.join();
  EXPECT_TRUE(Commit(kDirect, 5).missing.empty());
}

TEST_F(EncodedLandingTest, ACommitWaitsForTheWorkers) {
  ASSERT_EQ(LandTables(kOther), StatusCode::kOk);
  HoldWorker();
  LandAll(kOther);
  std::thread later([this] { Release(); });
  EXPECT_TRUE(Commit(kOther, 3).missing.empty());
  later.join();
  EXPECT_EQ(InPool(1, {1, 3}), Kv(1));
}

TEST_F(EncodedLandingTest, ClosedUnderADecodingItDrainsFirst) {
  ASSERT_EQ(LandTables(kDirect), StatusCode::kOk);
  HoldWorker();
  EXPECT_EQ(LandFrame(kDirect, 0, 0, 0, 16), StatusCode::kOk);
  EXPECT_EQ(zone_->Close(kDirect), LandingZone::Closing::kDraining);
  EXPECT_TRUE(inbox_.Drain().empty());
  Release();
  absl::Notification done;
  workers_->Queue([&done] { done.Notify(); });
  done.WaitForNotification();
  const auto messages = inbox_.Drain();
  ASSERT_EQ(messages.size(), 1u);
  EXPECT_TRUE(std::holds_alternative<KvDrainedMessage>(messages.front()));
}

class PlainLandingTest : public EncodedLandingTest {
 protected:
  PlainLandingTest() : EncodedLandingTest(false) {}
};

TEST_F(PlainLandingTest, WithoutWorkersNothingEncodedIsOfferedOrAccepted) {
  EXPECT_TRUE(reads_.codecs.empty());
  EXPECT_EQ(LandFrame(kDirect, 0, 0, 0, 16), StatusCode::kPermissionDenied);
  EXPECT_EQ(LandTables(kDirect), StatusCode::kPermissionDenied);
}

}  // namespace
}  // namespace tandem::encoded_landing_test
