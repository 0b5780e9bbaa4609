#include "kvstore/codec/quantised.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <vector>

#include "base/half_scale.h"
#include "fmt/format.h"
#include "gtest/gtest.h"
#include "hwy/highway.h"
#include "kvstore/codec/quantised_layout.h"
#include "tests/unit/kvstore/codec/codec_data.h"

namespace tandem::quantised_test {
namespace {

using Bytes = std::vector<std::byte>;
constexpr size_t kHeaderBytes = sizeof(codec::QuantisedHeader);

// Larger than a payload can be: nothing of these tests is raw because it is small.
Bytes Encoded(QuantisedBits bits, const ExtentShape& shape, const Bytes& raw,
              const ExtentPlace& place = {}) {
  Bytes payload(2 * shape.Bytes() + 4096);
  payload.resize(NewQuantisedCodec(bits)->Encode(shape, place, raw, payload).value_or(0));
  return payload;
}
bool Decodes(const ExtentShape& shape, const Bytes& payload) {
  Bytes raw(shape.Bytes());
  return NewQuantisedCodec({})->Decode(shape, 0, payload, raw);
}
Bytes Decoded(const ExtentShape& shape, const Bytes& payload) {
  Bytes raw(shape.Bytes(), std::byte{0x55});
  EXPECT_TRUE(NewQuantisedCodec({})->Decode(shape, 0, payload, raw));
  return raw;
}
Bytes BackAndForth(QuantisedBits bits, const ExtentShape& shape, const Bytes& raw,
                   const ExtentPlace& place = {}) {
  return Decoded(shape, Encoded(bits, shape, raw, place));
}

Bytes BytesOf(const std::vector<float>& values) {
  Bytes raw(values.size() * sizeof(float));
  std::memcpy(raw.data(), values.data(), raw.size());
  return raw;
}
std::vector<float> Normal(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  std::vector<float> values(count);
  for (float& value : values) value = normal(random);
  return values;
}

// The transform by its definition: +1 or -1 by the bits that both indices have.
std::vector<double> Rotated(std::span<const double> group) {
  std::vector<double> sums(group.size());
  for (size_t i = 0; i < group.size(); ++i) {
    for (size_t j = 0; j < group.size(); ++j) {
      sums[i] += std::popcount(i & j) % 2 == 0 ? group[j] : -group[j];
    }
    sums[i] /= std::sqrt(static_cast<double>(group.size()));
  }
  return sums;
}
double Most(std::span<const double> values) {
  double most = 0;
  for (const double value : values) most = std::max(most, std::abs(value));
  return most;
}
int MostCode(int bits) { return (1 << (bits - 1)) - 1; }

// The root of the mean square of the error over that of the values.
double RelativeError(std::span<const double> before, std::span<const double> after) {
  double error = 0;
  double value = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    error += (after[i] - before[i]) * (after[i] - before[i]);
    value += before[i] * before[i];
  }
  return std::sqrt(error / value);
}

// Calls `function(group of before, the same group of after)` for all groups of an extent without
// exact tokens.
template <typename Function>
void ForEachPair(const ExtentShape& shape, const Bytes& before, const Bytes& after,
                 Function function) {
  const std::vector<double> x = ValuesOf(shape.dtype, before);
  const std::vector<double> y = ValuesOf(shape.dtype, after);
  codec::ForEachGroup(shape, {}, [&](const codec::QuantisedGroup& group) {
    const size_t at = group.raw_at / static_cast<size_t>(SizeOf(shape.dtype));
    function(std::span(x).subspan(at, group.lanes), std::span(y).subspan(at, group.lanes));
    return true;
  });
}

class QuantisedTest : public testing::Test {
 protected:
  void TearDown() override { hwy::GetChosenTarget().DeInit(); }
};

// The scale is known to a thousandth, by which an f16 may be rounded up.
TEST_F(QuantisedTest, NoErrorIsAboveHalfAScale) {
  for (const int bits : {3, 4, 5, 6, 7, 8}) {
    for (const int32_t head_dim : {8, 16, 24, 64, 72, 96, 128}) {
      const ExtentShape shape = {DType::kF32, 2, head_dim, 7};
      const Bytes raw = LikeKv(shape, 11);
      double largest = 0;
      ForEachPair(shape, raw, BackAndForth({bits, bits}, shape, raw), [&](auto x, auto y) {
        const std::vector<double> before = Rotated(x);
        const std::vector<double> after = Rotated(y);
        const double scale = Most(before) / MostCode(bits) * (1 + 0x1p-10);
        for (size_t i = 0; i < before.size(); ++i) {
          const double error = std::abs(after[i] - before[i]) / scale;
          ASSERT_LE(error, 0.5 + 1e-4) << bits << " bits, head_dim " << head_dim;
          largest = std::max(largest, error);
        }
      });
      EXPECT_GT(largest, 0.4) << "the bound says nothing at " << bits << " bits";
    }
  }
}

// A group of one token never sees another one: its values are the same, whatever is beside it.
TEST_F(QuantisedTest, EveryShapeComesBackNearly) {
  for (int32_t head_dim = 8; head_dim <= 256; head_dim += 8) {
    for (int32_t tokens = 1; tokens <= 64; tokens += head_dim % 64 == 0 ? 1 : 21) {
      const ExtentShape shape = {DType::kBF16, 1, head_dim, tokens};
      const Bytes raw = LikeKv(shape, 3);
      const Bytes back = BackAndForth({8, 8}, shape, raw);
      ASSERT_LT(RelativeError(ValuesOf(shape.dtype, raw), ValuesOf(shape.dtype, back)), 0.01)
          << head_dim << " channels, " << tokens << " tokens";
    }
  }
}

// What comes back in a narrow type is what comes back in f32, rounded once: to the nearest, to even
// bits where two are as near.
template <typename Fields>
void ExpectRounded(DType dtype) {
  const ExtentShape narrow = {dtype, 1, 72, 33};
  const ExtentShape wide = {DType::kF32, 1, 72, 33};
  const Bytes raw = LikeKv(narrow, 4);
  std::vector<float> values;
  for (const double value : ValuesOf(dtype, raw)) values.push_back(static_cast<float>(value));
  const auto expected = ValuesOf(DType::kF32, BackAndForth({5, 4}, wide, BytesOf(values)));
  const Bytes back = BackAndForth({5, 4}, narrow, raw);
  for (size_t i = 0; i < expected.size(); ++i) {
    typename Fields::Word word;
    std::memcpy(&word, back.data() + i * sizeof(word), sizeof(word));
    const double here = std::abs(ValueOf<Fields>(word) - expected[i]);
    for (const int step : {-1, 1}) {
      const auto other = static_cast<typename Fields::Word>(word + step);
      const double there = std::abs(ValueOf<Fields>(other) - expected[i]);
      ASSERT_TRUE(here < there || (here == there && word % 2 == 0) || (word & 0x7fff) == 0)
          << expected[i] << " became " << ValueOf<Fields>(word);
    }
  }
}
TEST_F(QuantisedTest, NarrowTypesAreRoundedToTheNearest) {
  ExpectRounded<BF16Fields>(DType::kBF16);
  ExpectRounded<F16Fields>(DType::kF16);
}

// Small f16 have fewer bits.
TEST_F(QuantisedTest, SmallF16ComeBack) {
  const ExtentShape shape = {DType::kF16, 1, 8, 2};
  Bytes raw(shape.Bytes());
  for (size_t i = 0; i < raw.size() / 2; ++i) {
    const auto word = static_cast<uint16_t>(40 * i | (i % 3 == 0 ? 0x8000 : 0));
    std::memcpy(raw.data() + i * sizeof(word), &word, sizeof(word));
  }
  const auto before = ValuesOf(shape.dtype, raw);
  const auto after = ValuesOf(shape.dtype, BackAndForth({8, 8}, shape, raw));
  for (size_t i = 0; i < before.size(); ++i) {
    EXPECT_NEAR(after[i], before[i], 1.5e-6) << "the scale is about 1e-6";
  }
}

// An error may move the largest f16 beyond what is one, and it must not become infinite.
TEST_F(QuantisedTest, TheLargestF16StayFinite) {
  const ExtentShape shape = {DType::kF16, 1, 64, 16};
  Bytes raw(shape.Bytes());
  std::mt19937_64 random(1);
  for (size_t at = 0; at < raw.size(); at += 2) {
    const auto word = static_cast<uint16_t>(random() % 2 == 0 ? 0x7bff : 0xfbff);
    std::memcpy(raw.data() + at, &word, sizeof(word));
  }
  const auto after = ValuesOf(shape.dtype, BackAndForth({3, 3}, shape, raw));
  EXPECT_EQ(Most(after), 65504);
  EXPECT_GT(std::ranges::count(after, 65504), 100) << "hardly any is beyond the largest";
}

// Uniform errors of one step have its twelfth root as their deviation, and the largest of 64 normal
// values is about 2.5 deviations: so many decibels for the first bits, and six for each other.
TEST_F(QuantisedTest, EachBitGainsSixDecibels) {
  const ExtentShape shape = {DType::kF32, 4, 64, 64};
  const Bytes raw = BytesOf(Normal(shape.Bytes() / sizeof(float), 5));
  const auto values = ValuesOf(shape.dtype, raw);
  double last = 1;
  for (const int bits : {3, 4, 5, 6, 7, 8}) {
    const double error =
        RelativeError(values, ValuesOf(shape.dtype, BackAndForth({bits, bits}, shape, raw)));
    EXPECT_NEAR(error * MostCode(bits) * std::sqrt(12), 2.5, 0.2) << bits << " bits";
    EXPECT_LT(error, last / 1.95) << bits << " bits";
    last = error;
  }
}

TEST_F(QuantisedTest, KAndVHaveBitsOfTheirOwn) {
  const ExtentShape shape = {DType::kF32, 2, 64, 16};
  const Bytes raw = LikeKv(shape, 8);
  const auto before = ValuesOf(shape.dtype, raw);
  const auto after = ValuesOf(shape.dtype, BackAndForth({8, 3}, shape, raw));
  const size_t half = before.size() / 2;
  EXPECT_LT(RelativeError(std::span(before).first(half), std::span(after).first(half)), 0.01);
  EXPECT_GT(RelativeError(std::span(before).subspan(half), std::span(after).subspan(half)), 0.1);
}

// One channel is 40 times as large as the others, as some of K are. Without the rotation it would
// set the scale, and the others would become 0.
TEST_F(QuantisedTest, TheRotationSpreadsALargeChannel) {
  const ExtentShape shape = {DType::kF32, 1, 64, 16};
  std::vector<float> values = Normal(shape.Bytes() / sizeof(float), 6);
  for (size_t i = 17; i < values.size(); i += 64) values[i] = 40;
  const Bytes raw = BytesOf(values);
  const auto before = ValuesOf(shape.dtype, raw);
  const auto after = ValuesOf(shape.dtype, BackAndForth({4, 4}, shape, raw));
  double error = 0;
  double others = 0;
  for (size_t i = 0; i < before.size(); ++i) {
    if (i % 64 == 17) continue;
    error += (after[i] - before[i]) * (after[i] - before[i]);
    others += before[i] * before[i];
  }
  EXPECT_LT(std::sqrt(error / others), 0.4) << "a scale of 40 / 7 would make it 1";
}

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

TEST_F(QuantisedTest, DamagedFramesAreRefused) {
  const ExtentShape shape = {DType::kBF16, 1, 72, 9};
  const auto codec = NewQuantisedCodec({5, 4});
  Bytes frame(MostFrameBytes(shape));
  frame.resize(
      EncodeFrame(codec.get(), shape, {.exact_front = 1}, LikeKv(shape, 2), frame).value_or(0));
  ASSERT_EQ(frame.at(4), std::byte{4}) << "not a quantised frame";
  Bytes back(shape.Bytes());
  ASSERT_TRUE(DecodeFrame(codec.get(), shape, 0, frame, back).ok());
  for (size_t size = 0; size < frame.size(); ++size) {
    EXPECT_FALSE(DecodeFrame(codec.get(), shape, 0, std::span(frame).first(size), back).ok());
  }
  for (size_t bit = 0; bit < 8 * frame.size(); ++bit) {
    Bytes damaged = frame;
    damaged[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
    EXPECT_FALSE(DecodeFrame(codec.get(), shape, 0, damaged, back).ok()) << bit;
  }
}

// Payloads that no hash protects: nothing but sanitizers sees what is read beyond them.
TEST_F(QuantisedTest, ShorterAndLongerPayloadsAreRefused) {
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    const ExtentShape shape = {dtype, 1, 72, 5};
    Bytes raw = LikeKv(shape, 3);
    const Bytes any = RandomBits(shape, 3);
    std::copy_n(any.begin(), raw.size() / 3, raw.begin());
    const Bytes payload = Encoded({6, 3}, shape, raw, {.exact_back = 1});
    ASSERT_TRUE(Decodes(shape, payload));
    for (size_t size = 0; size < payload.size(); ++size) {
      EXPECT_FALSE(
          Decodes(shape, Bytes(payload.begin(), payload.begin() + static_cast<long>(size))))
          << size;
    }
    Bytes longer = payload;
    longer.push_back(std::byte{0});
    EXPECT_FALSE(Decodes(shape, longer));
    for (size_t bit = 0; bit < 8 * payload.size(); ++bit) {
      Bytes damaged = payload;
      damaged[bit / 8] ^= static_cast<std::byte>(1 << bit % 8);
      Decodes(shape, damaged);
    }
  }
}

// Payloads of a token with one group of K and one of V, changed at one place.
class QuantisedPayloadTest : public testing::Test {
 protected:
  static constexpr ExtentShape kShape = {DType::kF32, 1, 64, 1};
  static constexpr size_t kScalesAt = kHeaderBytes;
  static constexpr size_t kMasksAt = kHeaderBytes + 4;

  // 5 bits each, so that the masks of plain codes are 5 * 8 bytes.
  static Bytes Payload(const std::vector<float>& values) {
    return Encoded({5, 5}, kShape, BytesOf(values));
  }
  static Bytes With(Bytes payload, size_t at, std::vector<int> bytes) {
    for (const int byte : bytes) payload.at(at++) = static_cast<std::byte>(byte);
    return payload;
  }
};

TEST_F(QuantisedPayloadTest, HeadersThatEncodeDoesNotWriteAreRefused) {
  const Bytes payload = Payload(Normal(128, 2));
  ASSERT_TRUE(Decodes(kShape, payload));
  EXPECT_FALSE(Decodes(kShape, With(payload, 0, {0}))) << "version";
  EXPECT_FALSE(Decodes(kShape, With(payload, 0, {2}))) << "version";
  EXPECT_FALSE(Decodes(kShape, With(payload, 1, {1}))) << "zero";
  for (const size_t side : {0, 1}) {
    EXPECT_FALSE(Decodes(kShape, With(payload, 2 + side, {2}))) << "bits";
    EXPECT_FALSE(Decodes(kShape, With(payload, 2 + side, {9}))) << "bits";
    EXPECT_FALSE(Decodes(kShape, With(payload, 4 + side, {1}))) << "low bits";
    EXPECT_FALSE(Decodes(kShape, With(payload, 4 + side, {4}))) << "low bits";
    EXPECT_FALSE(Decodes(kShape, With(payload, 4 + side, {6}))) << "low bits";
  }
  EXPECT_FALSE(Decodes(kShape, With(payload, 6, {2}))) << "exact tokens";
  EXPECT_FALSE(Decodes(kShape, With(payload, 6, {0xff, 0xff, 0xff, 0xff}))) << "exact tokens";
}

TEST_F(QuantisedPayloadTest, ScalesThatAreNoneAreRefused) {
  const Bytes payload = Payload(Normal(128, 2));
  EXPECT_TRUE(Decodes(kShape, With(payload, kScalesAt, {0xff, 0x7b}))) << "the largest";
  EXPECT_FALSE(Decodes(kShape, With(payload, kScalesAt, {0x01, 0x7c}))) << "NaN";
  EXPECT_FALSE(Decodes(kShape, With(payload, kScalesAt, {0x00, 0xbc}))) << "-1";
  EXPECT_FALSE(Decodes(kShape, With(payload, kScalesAt, {0x00, 0x7c}))) << "no exact group";
}

TEST_F(QuantisedPayloadTest, CodesOfGroupsThatHaveNoneAreRefused) {
  const Bytes zeros = Payload(std::vector<float>(128));
  ASSERT_TRUE(Decodes(kShape, zeros));
  EXPECT_FALSE(Decodes(kShape, With(zeros, kMasksAt, {1})));
  const Bytes payload = Payload(Normal(128, 2));
  EXPECT_FALSE(Decodes(kShape, With(payload, kScalesAt, {0, 0})));
}

// Of K and V alike, so that Encode packs them plainly: half of the codes are 15, half -15.
std::vector<float> LargeCodes() {
  std::vector<double> codes(64);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = i % 2 == 0 ? 15 : -15;
  std::vector<float> values;
  for (int side = 0; side < 2; ++side) {
    for (const double value : Rotated(codes)) values.push_back(static_cast<float>(value));
  }
  return values;
}

// A code of -16 would be of 5 bits, but Encode writes -15 to 15.
TEST_F(QuantisedPayloadTest, ACodeBelowTheLeastIsRefused) {
  const Bytes payload = Payload(LargeCodes());
  ASSERT_TRUE(Decodes(kShape, payload));
  ASSERT_EQ(payload.at(4), std::byte{5}) << "not packed plainly";
  EXPECT_FALSE(Decodes(kShape, With(payload, kMasksAt, {0xff}))) << "rank 31";

  const Bytes unary = Payload(Normal(128, 2));
  const auto low_bits = std::to_integer<size_t>(unary.at(4));
  ASSERT_LT(low_bits, 5u) << "packed plainly";
  size_t refused = 0;
  for (size_t lane = 0; lane < 64; ++lane) {
    Bytes changed = unary;
    for (size_t mask = 0; mask < low_bits; ++mask) {
      changed[kMasksAt + 8 * mask + lane / 8] |= static_cast<std::byte>(1 << lane % 8);
    }
    refused += Decodes(kShape, changed) ? 0 : 1;
  }
  EXPECT_GE(refused, 1u) << "a channel with the largest rest has rank 31";
  EXPECT_LT(refused, 32u) << "the others have one that is right";
}

// With one low bit fewer than all the masks are the same, so that nothing else shows it.
TEST_F(QuantisedPayloadTest, ThereIsOneWayToPackPlainly) {
  const Bytes payload = Payload(LargeCodes());
  ASSERT_EQ(payload.at(4), std::byte{5}) << "not packed plainly";
  EXPECT_FALSE(Decodes(kShape, With(payload, 4, {4})));
}

// Every f16 that a scale can be is itself, and what lies between two becomes the larger.
TEST(HalfScaleTest, TheLeastHalfThatIsNotBelow) {
  for (uint16_t half = 0; half < kExactGroup; ++half) {
    const float value = FloatOfHalf(half);
    ASSERT_EQ(static_cast<double>(value), ValueOf<F16Fields>(half));
    ASSERT_EQ(HalfAtLeast(value), half);
    ASSERT_EQ(HalfAtLeast(std::nextafter(value, 1e9f)), half + 1);
  }
  EXPECT_EQ(HalfAtLeast(std::numeric_limits<float>::infinity()), kExactGroup);
  EXPECT_EQ(HalfAtLeast(std::numeric_limits<float>::quiet_NaN()), kExactGroup);
}

}  // namespace
}  // namespace tandem::quantised_test
