// What of an extent the codec that rounds keeps bit for bit, and the bytes of the payloads that it writes.

#include <bit>
#include <cstdint>
#include <cstring>
#include <limits>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "kvstore/codec/rounded_layout.h"
#include "tests/unit/kvstore/codec/rounded_extent.h"

namespace tandem::rounded_test::payload_test {
namespace {

TEST_F(RoundedTest, ExactTokensKeepTheirBits) {
  const ExtentShape shape = {DType::kBF16, 2, 72, 9};
  const auto codec = CodecFor(shape, 0.4f);
  const Bytes raw = LikeKv(shape, 4);
  const size_t token = 72 * 2;
  for (const int front : {0, 1, 4, 9}) {
    const Bytes decoded = BackAndForth(*codec, shape, raw, {.exact_front = front});
    for (size_t at = 0; at < raw.size(); at += token) {
      const auto index = static_cast<int>(at / token % 9);
      const bool same = std::memcmp(raw.data() + at, decoded.data() + at, token) == 0;
      EXPECT_EQ(same, index < front) << index;
    }
  }
  const Bytes any = RandomBits(shape, 4);
  EXPECT_EQ(BackAndForth(*codec, shape, any, {.exact_front = 100}), any);
}

// A value that is not finite, or so far from its channel's centre that its rank would be huge.
TEST_F(RoundedTest, RowsWithAnExtremeValueKeepTheirBits) {
  const ExtentShape shape = {DType::kF32, 1, 72, 3};
  const auto codec = CodecFor(shape, 0.3f);
  for (const float odd : {std::numeric_limits<float>::infinity(), -1e30f, 1e6f,
                          std::bit_cast<float>(0x7fc01234u), std::bit_cast<float>(0xffa00001u)}) {
    for (const size_t channel : {0, 63, 64, 71}) {
      std::vector<double> usual = ValuesOf(shape.dtype, LikeKv(shape, 9));
      std::vector<float> values(usual.begin(), usual.end());
      values[72 + channel] = odd;
      const Bytes raw = BytesOf(values);
      const Bytes back = BackAndForth(*codec, shape, raw);
      size_t exact = 0;
      codec::ForEachRoundedRow(shape, {}, [&](const codec::RowPlace& place) {
        const size_t bytes = place.lanes * sizeof(float);
        const size_t at = (72 + channel) * sizeof(float);
        const bool is_odd = place.raw_at <= at && at < place.raw_at + bytes;
        EXPECT_EQ(std::memcmp(&raw[place.raw_at], &back[place.raw_at], bytes) == 0, is_odd)
            << channel;
        exact += is_odd ? 1 : 0;
        return true;
      });
      EXPECT_EQ(exact, 1u);
    }
  }
}

TEST_F(RoundedTest, OnlyTheKvOfItsTablesFits) {
  const ExtentShape shape = {DType::kBF16, 2, 64, 16};
  const auto codec = CodecFor(shape, 0.1f);
  EXPECT_TRUE(codec->Fits({DType::kBF16, 2, 64, 3}, 0));
  EXPECT_FALSE(codec->Fits(shape, 1)) << "a layer that the tables do not have";
  EXPECT_FALSE(codec->Fits({DType::kF16, 2, 64, 16}, 0));
  EXPECT_FALSE(codec->Fits({DType::kBF16, 1, 64, 16}, 0));
  EXPECT_FALSE(CodecFor({DType::kF8E4M3, 2, 64, 16}, 0.1f)->Fits({DType::kF8E4M3, 2, 64, 16}, 0));
  EXPECT_FALSE(codec->lossless());
  EXPECT_EQ(codec->name(), "step0.1");
  EXPECT_EQ(CodecName(codec->id()), "rounded");
  EXPECT_EQ(CodecName(static_cast<CodecId>(4)), "unknown");
}

// A frame names the tables and the step together: read with another step, it would be other KV.
TEST_F(RoundedTest, FramesOfOtherTablesOrStepsAreRefused) {
  const ExtentShape shape = {DType::kBF16, 1, 64, 16};
  const auto codec = CodecFor(shape, 0.1f);
  Bytes frame(MostFrameBytes(shape));
  frame.resize(EncodeFrame(codec.get(), shape, {}, LikeKv(shape, 2), frame).value_or(0));
  Bytes back(shape.Bytes());
  EXPECT_TRUE(DecodeFrame(codec.get(), shape, 0, frame, back).ok());
  EXPECT_TRUE(DecodeFrame(CodecFor(shape, 0.1f).get(), shape, 0, frame, back).ok());
  const auto refusal = [&](const KvCodec& other) {
    return DecodeFrame(&other, shape, 0, frame, back).code();
  };
  EXPECT_EQ(refusal(*CodecFor(shape, 0.2f)), absl::StatusCode::kFailedPrecondition);
  const KvSensitivity uneven = {.k = {4}, .v = {1}};
  EXPECT_EQ(refusal(*CodecFor(shape, 0.1f, uneven)), absl::StatusCode::kFailedPrecondition);
}

// As of all codecs: the instructions of this machine's targets differ, and what they make must not.
TEST_F(RoundedTest, EveryTargetWritesAndReadsTheSameBytes) {
  std::vector<int64_t> targets = {HWY_SCALAR};  // stands for the baseline
  for (const int64_t target : {int64_t{HWY_AVX3}, int64_t{HWY_AVX2}, int64_t{HWY_NEON}}) {
    if ((hwy::SupportedTargets() & target) != 0) targets.push_back(target);
  }
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const ExtentShape shape = {dtype, 2, 120, 40};
    for (const Bytes& raw : {LikeKv(shape, 4), RandomBits(shape, 4)}) {
      for (const float step : {0.01f, 0.1f, 0.7f}) {
        const auto codec = CodecFor(shape, step);
        hwy::GetChosenTarget().DeInit();
        const Bytes expected = Encoded(*codec, shape, raw, {.exact_front = 1});
        ASSERT_FALSE(expected.empty());
        const Bytes back = Decoded(*codec, shape, expected);
        for (const int64_t target : targets) {
          hwy::GetChosenTarget().Update(target);
          EXPECT_EQ(Encoded(*codec, shape, raw, {.exact_front = 1}), expected)
              << hwy::TargetName(target) << " " << Name(dtype);
          EXPECT_EQ(Decoded(*codec, shape, expected), back)
              << hwy::TargetName(target) << " " << Name(dtype);
        }
      }
    }
  }
}

// The payload of docs/kv_codecs.md: these bytes do not change without a new version. The step is 1, and
// a spread of 4 steps makes two low bits.
TEST_F(RoundedTest, BytesOfAPayload) {
  const ExtentShape shape = {DType::kF32, 1, 8, 2};
  const auto codec = NewRoundedCodec(std::make_shared<const CodecTables>(PlainTables()), 0.25f);
  std::vector<float> values(4 * 8, 1);
  values[0] = 2;                                      // K of the token that is exact
  values[8 + 0] = 1.4f;                               // K of the other: code 0, rank 0
  values[8 + 1] = 0;                                  // code -1, rank 1
  values[8 + 2] = 3;                                  // code 2, rank 4: low bits 0, rest 1
  values[8 + 7] = -4;                                 // code -5, rank 9: low bits 1, rest 2
  for (size_t i = 24; i < 32; ++i) values[i] = 1e9f;  // V of the other
  const Bytes payload = Encoded(*codec, shape, BytesOf(values), {.exact_front = 1});
  std::string hex;
  for (size_t i = 0; i < payload.size(); ++i) {
    const bool is_exact = (i >= 8 && i < 8 + 64) || (i >= 8 + 64 + 1 && i < 8 + 64 + 1 + 32);
    if (!is_exact) hex += fmt::format("{:02x}", std::to_integer<int>(payload[i]));
  }
  EXPECT_EQ(hex,
            "0100"      // version
            "0100"      // exact tokens
            "1b000000"  // 27 bits of K
            "02"        // the second row, which is V, is exact
            "04000000"  // 4 bytes in the stream
            "82"        // the lowest bits of the ranks
            "00"        // the second bits
            "84"        // rests of at least 1: channels 2 and 7
            "02");      // of these, that of channel 7 is at least 2; of that, none is at least 3
  const auto back = ValuesOf(shape.dtype, Decoded(*codec, shape, payload));
  EXPECT_EQ(back[8], 1);
  EXPECT_EQ(back[9], 0);
  EXPECT_EQ(back[10], 3);
  EXPECT_EQ(back[15], -4);
  EXPECT_EQ(back[0], 2);
  EXPECT_EQ(back[31], 1e9f);
}

TEST_F(RoundedTest, WhatDoesNotFitIsNotWritten) {
  const ExtentShape shape = {DType::kBF16, 1, 72, 9};
  Bytes raw = LikeKv(shape, 2);
  raw[700] = raw[701] = std::byte{0xff};  // NaN in a token that is not exact
  const auto codec = CodecFor(shape, 0.2f);
  const Bytes payload = Encoded(*codec, shape, raw, {.exact_front = 2});
  for (size_t size = 0; size < payload.size() + 64; ++size) {
    Bytes out(size);
    const auto written = codec->Encode(shape, {.exact_front = 2}, raw, out);
    ASSERT_EQ(written.has_value(), size >= payload.size()) << size;
    if (written) {
      out.resize(*written);
      ASSERT_EQ(out, payload) << size;
    }
  }
}

}  // namespace
}  // namespace tandem::rounded_test::payload_test
