// Which codec a stream of KV gets, what its frames hold, and what is counted of it.

#include "engine/handoff/kv_encoder.h"

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "gtest/gtest.h"
#include "kvstore/codec/packed_extent.h"
#include "tests/unit/engine/kv_encoder_fixture.h"
#include "tests/unit/kvstore/codec/codec_data.h"

namespace tandem::kv_encoder_test {
namespace {

using kv_encoder::kEncoderLayout;
using kv_encoder::kEncoderShape;
using kv_encoder::kEndlessLink;
using kv_encoder::kReadsAll;
using kv_encoder::kSlowLink;
using kv_encoder::KvEncoderTest;
using kv_encoder::TargetThatReads;

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
      TargetThatReads({CodecId::kRaw, CodecId::kF3, CodecId::kMaskRice, CodecId::kRounded});
  EXPECT_EQ(Chosen(reads_rounded, kSlowLink), CodecId::kMaskRice);
  EXPECT_EQ(Chosen(reads_rounded, kEndlessLink, KvQuality::kCompact), CodecId::kRaw);
  EXPECT_EQ(Chosen(kReadsAll, kSlowLink, KvQuality::kCompact), CodecId::kMaskRice);
  const auto name_of = [&](KvQuality quality) {
    return encoder_
        ->Choose(reads_rounded, {.link = kSlowLink, .bytes = 1 << 20, .quality = quality})
        .codec->name();
  };
  EXPECT_EQ(name_of(KvQuality::kNearStrict), "step0.027");
  EXPECT_EQ(name_of(KvQuality::kNear), "step0.09");
  EXPECT_EQ(name_of(KvQuality::kCompact), "step0.385");
  EXPECT_EQ(name_of(KvQuality::kTiny), "step0.6");
}

TEST_F(KvEncoderTest, ANamedCodecStandsForEncodingWhereLossIsAllowed) {
  const HandoffTarget reads_rounded =
      TargetThatReads({CodecId::kRaw, CodecId::kMaskRice, CodecId::kRounded});
  Start(CodecId::kMaskRice);
  MakeTables();
  EXPECT_EQ(Chosen(reads_rounded, kEndlessLink, KvQuality::kNear), CodecId::kRounded);
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
  ASSERT_EQ(stats.wire_codecs.size(), 7u);
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

}  // namespace
}  // namespace tandem::kv_encoder_test
