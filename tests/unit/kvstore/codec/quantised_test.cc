// What of an extent the quantised codec keeps bit for bit, and the bytes of the payloads that it writes.

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <random>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "kvstore/codec/quantised_layout.h"
#include "tests/unit/kvstore/codec/codec_data.h"
#include "tests/unit/kvstore/codec/quantised_extent.h"

namespace tandem::quantised_test::payload_test {
namespace {

TEST_F(QuantisedTest, ExactTokensKeepTheirBits) {
  const ExtentShape shape = {DType::kBF16, 2, 72, 9};
  const Bytes raw = LikeKv(shape, 4);
  const size_t token = 72 * 2;
  for (const auto& [front, back] : {std::pair(0, 0), {4, 0}, {0, 3}, {2, 5}, {9, 0}, {1, 8}}) {
    const Bytes decoded =
        BackAndForth({4, 3}, shape, raw, {.exact_front = front, .exact_back = back});
    bool changed = false;
    for (size_t at = 0; at < raw.size(); at += token) {
      const auto index = static_cast<int>(at / token % 9);
      const bool same = std::memcmp(raw.data() + at, decoded.data() + at, token) == 0;
      EXPECT_TRUE(same || (index >= front && index < 9 - back)) << index;
      changed = changed || !same;
    }
    EXPECT_EQ(changed, front + back < 9) << front << ", " << back;
  }
  const ExtentPlace more_than_all = {.exact_front = 100, .exact_back = 100};
  const Bytes any = RandomBits(shape, 4);
  EXPECT_EQ(BackAndForth({4, 3}, shape, any, more_than_all), any);
}

TEST_F(QuantisedTest, GroupsThatAreNotFiniteKeepTheirBits) {
  for (const float odd : {std::numeric_limits<float>::infinity(), -1e30f,
                          std::bit_cast<float>(0x7fc01234u), std::bit_cast<float>(0xffa00001u)}) {
    for (const size_t channel : {0, 63, 64, 71}) {
      const ExtentShape shape = {DType::kF32, 1, 72, 3};
      std::vector<float> values = Normal(shape.Bytes() / sizeof(float), 9);
      values[72 + channel] = odd;
      const Bytes raw = BytesOf(values);
      const Bytes back = BackAndForth({5, 4}, shape, raw);
      size_t exact = 0;
      codec::ForEachGroup(shape, {}, [&](const codec::QuantisedGroup& group) {
        const size_t bytes = group.lanes * sizeof(float);
        const size_t at = (72 + channel) * sizeof(float);
        const bool is_odd = group.raw_at <= at && at < group.raw_at + bytes;
        EXPECT_EQ(std::memcmp(&raw[group.raw_at], &back[group.raw_at], bytes) == 0, is_odd)
            << channel;
        exact += is_odd ? 1 : 0;
        return true;
      });
      EXPECT_EQ(exact, 1u);
    }
  }
}

TEST_F(QuantisedTest, ZerosComeBackAsZeros) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const ExtentShape shape = {dtype, 2, 40, 3};
    const Bytes zeros(shape.Bytes());
    EXPECT_EQ(BackAndForth({3, 8}, shape, zeros), zeros) << Name(dtype);
  }
}

// The bits that a codec was made for are those it encodes with.
TEST_F(QuantisedTest, EveryDecoderReadsEveryNumberOfBits) {
  const ExtentShape shape = {DType::kBF16, 1, 64, 4};
  const Bytes raw = LikeKv(shape, 2);
  for (int bits = 3; bits <= 8; ++bits) {
    const Bytes payload = Encoded({bits, 11 - bits}, shape, raw);
    Bytes one(raw.size());
    Bytes other(raw.size());
    EXPECT_TRUE(NewQuantisedCodec({3, 3})->Decode(shape, 0, payload, one));
    EXPECT_TRUE(NewQuantisedCodec({8, 8})->Decode(shape, 0, payload, other));
    EXPECT_EQ(one, other);
  }
}

TEST_F(QuantisedTest, OnlyTypesWithRoomForAnErrorFit) {
  const auto codec = NewQuantisedCodec({});
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    EXPECT_TRUE(codec->Fits({dtype, 2, 64, 16}, 7)) << Name(dtype);
  }
  EXPECT_FALSE(codec->Fits({DType::kF8E4M3, 2, 64, 16}, 0));
  EXPECT_FALSE(codec->Fits({DType::kBF16, 2, 20, 16}, 0));
  EXPECT_FALSE(codec->lossless());
  EXPECT_EQ(CodecName(codec->id()), "quantised");
  EXPECT_EQ(CodecName(static_cast<CodecId>(200)), "unknown");
}

// As of all codecs: the instructions of this machine's targets differ, and what they make must not.
TEST_F(QuantisedTest, EveryTargetWritesAndReadsTheSameBytes) {
  std::vector<int64_t> targets = {HWY_SCALAR};  // stands for the baseline
  for (const int64_t target : {int64_t{HWY_AVX3}, int64_t{HWY_AVX2}, int64_t{HWY_NEON}}) {
    if ((hwy::SupportedTargets() & target) != 0) targets.push_back(target);
  }
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const ExtentShape shape = {dtype, 2, 120, 40};
    for (const Bytes& raw : {LikeKv(shape, 4), RandomBits(shape, 4)}) {
      for (const QuantisedBits bits : {QuantisedBits{3, 4}, {5, 6}, {7, 8}}) {
        hwy::GetChosenTarget().DeInit();
        const Bytes expected = Encoded(bits, shape, raw, {.exact_front = 1});
        const Bytes back = Decoded(shape, expected);
        for (const int64_t target : targets) {
          hwy::GetChosenTarget().Update(target);
          EXPECT_EQ(Encoded(bits, shape, raw, {.exact_front = 1}), expected)
              << hwy::TargetName(target) << " " << Name(dtype);
          EXPECT_EQ(Decoded(shape, expected), back)
              << hwy::TargetName(target) << " " << Name(dtype);
        }
      }
    }
  }
}

// Bits of a value with their share of the scale.
double BitsOf(const ExtentShape& shape, const Bytes& payload) {
  return 8.0 * static_cast<double>(payload.size()) * static_cast<double>(SizeOf(shape.dtype)) /
         static_cast<double>(shape.Bytes());
}

// Normal values have an entropy of log2(4.13 deviations) bits, where the largest of 64 is 2.5
// deviations.
TEST_F(QuantisedTest, TheEntropyStageSavesWhatNormalValuesLeave) {
  const ExtentShape shape = {DType::kF32, 4, 64, 32};
  const Bytes raw = BytesOf(Normal(shape.Bytes() / sizeof(float), 5));
  for (const int bits : {3, 4, 5, 6, 7, 8}) {
    const double entropy = std::log2(4.13 * MostCode(bits) / 2.5);
    const double needed = BitsOf(shape, Encoded({bits, bits}, shape, raw)) - 16.0 / 64;
    EXPECT_LT(needed, std::min(bits - 0.15, entropy + 0.2)) << bits << " bits";
    EXPECT_GT(needed, entropy - 0.1) << bits << " bits";
  }
}

// All codes are as frequent here, so that unary numbers would be longer than the codes.
TEST_F(QuantisedTest, CodesThatAreAlikeArePackedPlainly) {
  const ExtentShape shape = {DType::kF32, 1, 64, 64};
  std::mt19937_64 random(3);
  std::vector<float> values;
  while (values.size() * sizeof(float) < shape.Bytes()) {
    std::vector<double> codes(64);
    for (double& code : codes) code = static_cast<double>(random() % 31) - 15;
    codes[0] = 15;
    for (const double value : Rotated(codes)) values.push_back(static_cast<float>(value));
  }
  const Bytes payload = Encoded({5, 5}, shape, BytesOf(values));
  EXPECT_EQ(payload[4], std::byte{5});
  EXPECT_EQ(payload[5], std::byte{5});
  EXPECT_EQ(payload.size(), kHeaderBytes + 2 * 64 * (2 + 5 * 8) + sizeof(uint32_t));
  EXPECT_LT(RelativeError(ValuesOf(shape.dtype, BytesOf(values)),
                          ValuesOf(shape.dtype, Decoded(shape, payload))),
            1e-3);
}

// The payload of docs/kv_codecs.md: these bytes do not change without a new version.
TEST_F(QuantisedTest, BytesOfAPayload) {
  const ExtentShape shape = {DType::kF32, 1, 16, 2};
  std::vector<float> values(4 * 16);
  values[0] = 2;  // K of the token that is exact
  // K of the other one becomes 28, and 15 zeros.
  for (size_t i = 16; i < 32; ++i) values[i] = 7;
  values[32] = -1;  // V of the exact token
  // V becomes -1 and 1 in turn, with a scale of 1 / 3.
  values[48 + 1] = -4;
  const Bytes payload = Encoded({4, 3}, shape, BytesOf(values), {.exact_front = 1});
  std::string hex;
  for (size_t i = 0; i < payload.size(); ++i) {
    const bool is_exact = i >= kHeaderBytes && i < kHeaderBytes + 128;
    if (!is_exact) hex += fmt::format("{:02x}", std::to_integer<int>(payload[i]));
  }
  EXPECT_EQ(hex,
            "0100"      // version
            "0403"      // bits
            "0103"      // low bits: one of K, all of V
            "01000000"  // exact tokens
            "0044"      // 4
            "5635"      // 1 / 3, rounded up
            "0000"      // K: rank 14 of the first channel, whose low bit is 0
            "0100"      //    the rest is 7
            "5555"      // V: ranks 5 and 6 in turn
            "aaaa"
            "ffff"
            "01000000"  // a byte in the stream
            "3f");
  const std::span<const std::byte> sent = std::as_bytes(std::span(values));
  const std::span<const std::byte> kept = std::span(payload).subspan(kHeaderBytes, 128);
  EXPECT_TRUE(std::ranges::equal(kept.first(64), sent.first(64)));
  EXPECT_TRUE(std::ranges::equal(kept.last(64), sent.subspan(128, 64)));
}

TEST_F(QuantisedTest, WhatDoesNotFitIsNotWritten) {
  const ExtentShape shape = {DType::kBF16, 1, 72, 9};
  Bytes raw = LikeKv(shape, 2);
  raw[700] = raw[701] = std::byte{0xff};  // NaN in a token that is not exact
  const auto codec = NewQuantisedCodec({5, 4});
  const Bytes payload = Encoded({5, 4}, shape, raw, {.exact_front = 2});
  for (size_t size = 0; size < payload.size() + 512; ++size) {
    Bytes out(size);
    const auto written = codec->Encode(shape, {.exact_front = 2}, raw, out);
    ASSERT_TRUE(size >= payload.size() || !written) << size;
    if (written) {
      out.resize(*written);
      ASSERT_EQ(out, payload) << size;
    }
  }
  Bytes enough(payload.size() + 512);
  EXPECT_TRUE(codec->Encode(shape, {.exact_front = 2}, raw, enough).has_value());
}

}  // namespace
}  // namespace tandem::quantised_test::payload_test
