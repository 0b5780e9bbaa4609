#include "engine/handoff/kv_encoder.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kvstore/codec/packed_extent.h"
#include "tests/support/fake_clock.h"
#include "tests/unit/kvstore/codec/codec_data.h"

namespace tandem::kv_encoder_test {
namespace {

constexpr KvLayout kEncoderLayout = {
    .num_layers = 2, .num_kv_heads = 2, .head_dim = 64, .block_tokens = 16, .dtype = DType::kBF16};
constexpr ExtentShape kEncoderShape = {DType::kBF16, 2, 64, 16};
constexpr SendLink kSlowLink = {.takes_any_memory = true, .gigabytes_per_second = 0.001};
constexpr SendLink kEndlessLink = {.takes_any_memory = true, .gigabytes_per_second = 1e6};

// Time passes with each look at it, so that rates are not endless.
class TickingClock final : public Clock {
 public:
  TimePoint Now() const override { return now_ += std::chrono::microseconds(10); }

 private:
  mutable TimePoint now_{};
};

HandoffTarget TargetThatReads(std::vector<CodecId> codecs, std::vector<uint64_t> tables = {}) {
  HandoffTarget target;
  target.data_address = "decode-1:7000";
  target.reads = {.codecs = std::move(codecs), .tables = std::move(tables)};
  return target;
}

const HandoffTarget kReadsAll = TargetThatReads({CodecId::kRaw, CodecId::kF3, CodecId::kMaskRice});

class KvEncoderTest : public testing::Test {
 protected:
  void Start(std::optional<CodecId> codec, int64_t most_bytes = 1 << 20) {
    encoder_ = std::make_unique<KvEncoder>(
        KvEncoder::Options{.layout = kEncoderLayout, .codec = codec, .most_bytes = most_bytes},
        clock_);
  }
  void MakeTables() {
    for (uint64_t seed = 0; encoder_->calibrates(); ++seed) {
      ASSERT_LT(seed, 65u) << "1,024 tokens are enough";
      for (const int32_t layer : {0, 1}) {
        encoder_->Calibrate(layer, LikeKv(kEncoderShape, seed));
      }
    }
  }
  CodecId Chosen(const HandoffTarget& target, const SendLink& link,
                 KvQuality quality = KvQuality::kExact) {
    const StreamEncoding encoding =
        encoder_->Choose(target, {.link = link, .bytes = 10 << 20, .quality = quality});
    return encoding.codec == nullptr ? CodecId::kRaw : encoding.codec->id();
  }

  TickingClock clock_;
  std::unique_ptr<KvEncoder> encoder_;
};

TEST_F(KvEncoderTest, KvGoesAsItIsWhileThereAreNoTables) {
  Start(CodecId::kMaskRice);
  EXPECT_TRUE(encoder_->calibrates());
  EXPECT_EQ(Chosen(kReadsAll, kSlowLink), CodecId::kRaw);
  MakeTables();
  EXPECT_EQ(Chosen(kReadsAll, kSlowLink), CodecId::kMaskRice);
}

TEST_F(KvEncoderTest, TheRateOfTheLinkDecides) {
  Start(std::nullopt);
  MakeTables();
  EXPECT_EQ(Chosen(kReadsAll, kEndlessLink), CodecId::kRaw);
  EXPECT_EQ(Chosen(kReadsAll, kSlowLink), CodecId::kMaskRice) << "the smallest";
  EXPECT_EQ(Chosen(kReadsAll, {.takes_any_memory = true}), CodecId::kRaw) << "not measured";
}

TEST_F(KvEncoderTest, OnlyWhatThePeerReadsIsChosen) {
  Start(std::nullopt);
  MakeTables();
  EXPECT_EQ(Chosen(TargetThatReads({CodecId::kRaw, CodecId::kF3}), kSlowLink), CodecId::kF3);
  EXPECT_EQ(Chosen(TargetThatReads({CodecId::kRaw}), kSlowLink), CodecId::kRaw);
  EXPECT_FALSE(encoder_->Choose(TargetThatReads({}), {.link = kSlowLink, .bytes = 1 << 20}).frames);
  EXPECT_FALSE(
      encoder_->Choose(kReadsAll, {.link = {.gigabytes_per_second = 0.1}, .bytes = 1 << 20}).frames)
      << "a link that sends from the pool alone";
}

TEST_F(KvEncoderTest, KvIsChangedOnlyForAClassThatAllowsItAndAPeerThatReadsIt) {
  Start(std::nullopt);
  MakeTables();
  const HandoffTarget reads_rounded =
      TargetThatReads({CodecId::kRaw, CodecId::kF3, CodecId::kMaskRice, CodecId::kQuantised});
  EXPECT_EQ(Chosen(reads_rounded, kSlowLink), CodecId::kMaskRice);
  EXPECT_EQ(Chosen(reads_rounded, kEndlessLink, KvQuality::kCompact), CodecId::kRaw);
  EXPECT_EQ(Chosen(kReadsAll, kSlowLink, KvQuality::kCompact), CodecId::kMaskRice);
  const auto name_of = [&](KvQuality quality) {
    return encoder_
        ->Choose(reads_rounded, {.link = kSlowLink, .bytes = 1 << 20, .quality = quality})
        .codec->name();
  };
  EXPECT_EQ(name_of(KvQuality::kNearStrict), "k8v8");
  EXPECT_EQ(name_of(KvQuality::kNear), "k6v5");
  EXPECT_EQ(name_of(KvQuality::kCompact), "k4v3");
}

TEST_F(KvEncoderTest, ANamedCodecStandsForEncodingWhereLossIsAllowed) {
  const HandoffTarget reads_rounded =
      TargetThatReads({CodecId::kRaw, CodecId::kMaskRice, CodecId::kQuantised});
  Start(CodecId::kMaskRice);
  MakeTables();
  EXPECT_EQ(Chosen(reads_rounded, kEndlessLink, KvQuality::kNear), CodecId::kQuantised);
  EXPECT_EQ(Chosen(reads_rounded, kEndlessLink), CodecId::kMaskRice);
  Start(CodecId::kRaw);
  EXPECT_EQ(Chosen(reads_rounded, kSlowLink, KvQuality::kNear), CodecId::kRaw);
}

TEST_F(KvEncoderTest, TablesAreSentToWhoHasThemNot) {
  Start(CodecId::kF3);
  MakeTables();
  const StreamEncoding first = encoder_->Choose(kReadsAll, {.link = kSlowLink, .bytes = 1 << 20});
  ASSERT_FALSE(first.tables.empty());
  const auto tables = CodecTables::Parse(first.tables, kEncoderShape, 2);
  ASSERT_TRUE(tables.ok()) << tables.status();
  EXPECT_EQ(tables->id(), first.codec->tables_id());
  const HandoffTarget has_them = TargetThatReads({CodecId::kRaw, CodecId::kF3}, {7, tables->id()});
  EXPECT_TRUE(encoder_->Choose(has_them, {.link = kSlowLink, .bytes = 1 << 20}).tables.empty());
}

TEST_F(KvEncoderTest, TheTransferIsExpectedToTakeWhatRatioAndLinkSay) {
  Start(CodecId::kMaskRice);
  MakeTables();
  const StreamEncoding encoding =
      encoder_->Choose(kReadsAll, {.link = kSlowLink, .bytes = 1'000'000});
  const double raw_ms = 1000;  // 1 MB at 1 MB/s
  EXPECT_LT(encoding.expected.count(), raw_ms / 1.2);
  EXPECT_GT(encoding.expected.count(), raw_ms / 2);
}

TEST_F(KvEncoderTest, TheRatioToAPeerIsThatOfTheLatestStreamThatLosesNothing) {
  Start(std::nullopt);
  MakeTables();
  const std::string peer = kReadsAll.data_address;
  EXPECT_EQ(encoder_->RatioTo(peer), 1);
  Chosen(kReadsAll, kSlowLink);
  EXPECT_GT(encoder_->RatioTo(peer), 1.3);
  Chosen(kReadsAll, kSlowLink, KvQuality::kCompact);
  EXPECT_LT(encoder_->RatioTo(peer), 2);
  Chosen(kReadsAll, kEndlessLink);
  EXPECT_EQ(encoder_->RatioTo(peer), 1);
}

TEST(OverrunsTest, AreOfEachWayAndFadeWhereItIsNotUsed) {
  Overruns overruns;
  EXPECT_EQ(overruns.SecondsPerByte(1), 0);
  for (int i = 0; i < 40; ++i) overruns.Add(1, 100'000'000, 1);
  EXPECT_NEAR(overruns.SecondsPerByte(1), 1e-8, 3e-10);
  EXPECT_EQ(overruns.SecondsPerByte(0), 0);
  overruns.Add(0, 100'000'000, -5);
  EXPECT_EQ(overruns.SecondsPerByte(0), 0)
      << "what is faster than expected is believed to be chance";
  EXPECT_GT(overruns.SecondsPerByte(1), 0.9e-8);
  for (int i = 0; i < 300; ++i) overruns.Add(0, 100'000'000, 0.1);
  EXPECT_LT(overruns.SecondsPerByte(1), 2e-9) << "it is worth another try";
}

TEST_F(KvEncoderTest, WhatTransfersTookChangesTheChoice) {
  Start(std::nullopt);
  MakeTables();
  const KvEncoder::Demand demand = {.link = kSlowLink, .bytes = 20'000'000};
  const StreamEncoding first = encoder_->Choose(kReadsAll, demand);
  ASSERT_NE(first.codec, nullptr);
  const auto as_expected = std::chrono::duration_cast<Duration>(first.expected);
  encoder_->Learn(kReadsAll, demand, {.way = first.way, .took = as_expected});
  EXPECT_EQ(encoder_->Choose(kReadsAll, demand).way, first.way);
  // Computing the KV took most of the time.
  encoder_->Learn(kReadsAll, demand,
                  {.way = first.way, .took = 3 * as_expected, .computing = 3 * as_expected});
  EXPECT_EQ(encoder_->Choose(kReadsAll, demand).way, first.way);
  encoder_->Learn(kReadsAll, demand, {.way = first.way, .took = 4 * as_expected});
  const StreamEncoding next = encoder_->Choose(kReadsAll, demand);
  EXPECT_NE(next.way, first.way);
  EXPECT_LT(next.expected, 2 * first.expected);
}

TEST_F(KvEncoderTest, AFrameHoldsTheTokensThatAreSent) {
  Start(CodecId::kMaskRice);
  MakeTables();
  const auto codec = encoder_->Choose(kReadsAll, {.link = kSlowLink, .bytes = 1 << 20}).codec;
  const std::vector<std::byte> extent = LikeKv(kEncoderShape, 99);
  for (const int32_t tokens : {5, 16}) {
    std::vector<std::byte> out(extent.size());
    const auto [size, parts] = encoder_->Encode(codec.get(), {.layer = 1}, tokens, extent, out);
    ASSERT_TRUE(size);
    EXPECT_FALSE(parts.raw);
    EXPECT_EQ(parts.k.wire_bytes + parts.v.wire_bytes, *size);
    EXPECT_EQ(parts.k.kv_bytes, static_cast<uint64_t>(tokens) * 2 * 64 * 2);
    ExtentShape shape = kEncoderShape;
    shape.tokens = tokens;
    std::vector<std::byte> expected(shape.Bytes());
    PackTokens(shape, 16, extent, expected);
    std::vector<std::byte> back(shape.Bytes());
    EXPECT_EQ(DecodeFrame(codec.get(), shape, 1, std::span(out).first(*size), back),
              absl::OkStatus());
    EXPECT_EQ(back, expected);
  }
  std::vector<std::byte> out(extent.size());
  const auto [size, parts] =
      encoder_->Encode(codec.get(), {.layer = 1}, 16, RandomBits(kEncoderShape, 3), out);
  EXPECT_FALSE(size) << "what does not become smaller goes as it is";
  EXPECT_TRUE(parts.raw);
  EXPECT_EQ(parts.k.wire_bytes, kEncoderShape.Bytes() / 2);
}

TEST_F(KvEncoderTest, MemoryIsLimitedAndWhatFindsNoneIsCounted) {
  Start(CodecId::kMaskRice, 1000);
  EXPECT_TRUE(encoder_->Reserve(600, 3));
  EXPECT_FALSE(encoder_->Reserve(600, 3));
  EXPECT_TRUE(encoder_->Reserve(400, 2));
  encoder_->GiveBack(600);
  EXPECT_TRUE(encoder_->Reserve(600, 3));
  EngineStats stats;
  encoder_->AddTo(stats);
  EXPECT_EQ(stats.unencoded_extents, 3u);
}

TEST_F(KvEncoderTest, CountsSayWhatEachCodecDid) {
  Start(CodecId::kMaskRice);
  MakeTables();
  const auto codec = encoder_->Choose(kReadsAll, {.link = kSlowLink, .bytes = 1 << 20}).codec;
  std::vector<std::byte> out(kEncoderShape.Bytes());
  const auto [size, parts] = encoder_->Encode(codec.get(), {}, 16, LikeKv(kEncoderShape, 4), out);
  ASSERT_TRUE(size);
  EngineStats stats;
  encoder_->AddTo(stats);
  ASSERT_EQ(stats.wire_codecs.size(), 6u);
  for (const WireCodecStats& counts : stats.wire_codecs) {
    const bool is_it = counts.codec == CodecId::kMaskRice;
    EXPECT_EQ(counts.streams, is_it ? 1u : 0u);
    EXPECT_EQ(counts.kv_bytes(), is_it ? kEncoderShape.Bytes() : 0u);
    EXPECT_EQ(counts.wire_bytes(), is_it ? *size : 0u);
    EXPECT_EQ(counts.k, is_it ? parts.k : PartBytes{});
    EXPECT_EQ(counts.v, is_it ? parts.v : PartBytes{});
    EXPECT_EQ(counts.encode_gigabytes_per_second > 0, counts.codec != CodecId::kRaw);
  }
}

TEST_F(KvEncoderTest, AProbeEncodesASampleAndSendsItAsItIs) {
  encoder_ = std::make_unique<KvEncoder>(
      KvEncoder::Options{.layout = kEncoderLayout, .probes = true}, clock_);
  MakeTables();
  EXPECT_EQ(Chosen(kReadsAll, kSlowLink), CodecId::kRaw);
  EXPECT_EQ(Chosen(kReadsAll, kSlowLink, KvQuality::kCompact), CodecId::kRaw);
  constexpr uint64_t kSamples = 3;
  const std::vector<std::byte> extent = LikeKv(kEncoderShape, 4);
  for (uint64_t i = 0; i < kSamples * KvEncoder::kProbedExtents; ++i) {
    encoder_->Sample(1, 16, extent);
  }
  EngineStats stats;
  encoder_->AddTo(stats);
  const WireCodecStats& raw = stats.wire_codecs[0];
  const WireCodecStats& mask_rice = stats.wire_codecs[1];
  EXPECT_EQ(raw.streams, 2u);
  EXPECT_EQ(mask_rice.streams, 0u);
  EXPECT_EQ(mask_rice.kv_bytes(), kSamples * extent.size());
  EXPECT_LT(mask_rice.wire_bytes() * 13, mask_rice.kv_bytes() * 10);
}

// KV whose exponents are all smaller by 8.
std::vector<std::byte> LikeOtherKv(uint64_t seed) {
  std::vector<std::byte> extent = LikeKv(kEncoderShape, seed);
  for (size_t i = 0; i < extent.size(); i += sizeof(uint16_t)) {
    uint16_t word;
    std::memcpy(&word, &extent[i], sizeof(word));
    constexpr uint16_t kExponents = 0x7f80;
    const int exponent = std::max((word & kExponents) - (8 << 7), 0);
    word = static_cast<uint16_t>((word & ~kExponents) | (exponent & kExponents));
    std::memcpy(&extent[i], &word, sizeof(word));
  }
  return extent;
}

class CodecDriftTest : public KvEncoderTest {
 protected:
  CodecDriftTest() {
    for (uint64_t seed = 0; seed < 64; ++seed) extents_.push_back(LikeOtherKv(seed));
  }
  size_t Encode(const KvCodec& codec, uint64_t i) {
    std::vector<std::byte> out(kEncoderShape.Bytes());
    const ExtentPlace place = {.layer = static_cast<int32_t>(i % 2)};
    const std::vector<std::byte>& extent = extents_[i / 2 % extents_.size()];
    return encoder_->Encode(&codec, place, 16, extent, out).size.value_or(out.size());
  }
  // Encodes so much KV that new tables would be there if the codec's no longer fitted.
  void EncodeAWindow(const KvCodec& codec) {
    const size_t extents = 128 + CodecDrift::kWindowBytes / kEncoderShape.Bytes();
    for (uint64_t i = 0; i < extents; ++i) Encode(codec, i);
  }
  EngineStats Stats() const {
    EngineStats stats;
    encoder_->AddTo(stats);
    return stats;
  }

  std::vector<std::vector<std::byte>> extents_;
};

TEST_F(CodecDriftTest, TablesThatNoLongerFitAreMadeAgain) {
  Start(CodecId::kMaskRice);
  MakeTables();
  EXPECT_EQ(Stats().codec_calibrations, 1u);
  const auto old = encoder_->Choose(kReadsAll, {.link = kSlowLink, .bytes = 1 << 20}).codec;
  const HandoffTarget has_old = TargetThatReads({CodecId::kMaskRice}, {old->tables_id()});
  EncodeAWindow(*old);
  EXPECT_EQ(Stats().codec_calibrations, 2u);
  const StreamEncoding next = encoder_->Choose(has_old, {.link = kSlowLink, .bytes = 1 << 20});
  EXPECT_NE(next.codec->tables_id(), old->tables_id());
  EXPECT_FALSE(next.tables.empty());
  EXPECT_LT(Encode(*next.codec, 500) * 10, Encode(*old, 500) * 9);

  const uint64_t before = Stats().wire_codecs[1].kv_bytes();
  Encode(*old, 1);
  EXPECT_EQ(Stats().wire_codecs[1].kv_bytes(), before + kEncoderShape.Bytes())
      << "a stream may still have the old tables";
  EncodeAWindow(*next.codec);
  EncodeAWindow(*next.codec);
  EXPECT_EQ(Stats().codec_calibrations, 2u);
}

// A block that is not full has more headers for its KV.
TEST_F(CodecDriftTest, BlocksThatAreNotFullSayNothingOfTables) {
  CodecDrift drift;
  EXPECT_FALSE(drift.Add(CodecDrift::kWindowBytes - 1, CodecDrift::kWindowBytes - 1, 1.5));
  EXPECT_TRUE(drift.Add(1, 1, 1.5));
  EXPECT_FALSE(drift.Add(1, 1, 1.5)) << "another window began";
  EXPECT_FALSE(drift.Add(CodecDrift::kWindowBytes * 3 / 2, CodecDrift::kWindowBytes, 1.54));
  EXPECT_TRUE(drift.Add(CodecDrift::kWindowBytes * 3 / 2, CodecDrift::kWindowBytes, 1.56));
  Start(CodecId::kMaskRice);
  MakeTables();
  const auto codec = encoder_->Choose(kReadsAll, {.link = kSlowLink, .bytes = 1 << 20}).codec;
  const std::vector<std::byte> extent = LikeKv(kEncoderShape, 9);
  std::vector<std::byte> out(extent.size());
  for (size_t bytes = 0; bytes < 2 * CodecDrift::kWindowBytes; bytes += extent.size() / 16) {
    encoder_->Encode(codec.get(), {.layer = 1}, 1, extent, out);
  }
  EXPECT_FALSE(encoder_->calibrates());
}

}  // namespace
}  // namespace tandem::kv_encoder_test
