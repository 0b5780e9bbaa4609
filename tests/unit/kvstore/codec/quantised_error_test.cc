// By how much values that the quantised codec encodes may differ when they come back.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <random>
#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "kvstore/codec/quantised_layout.h"
#include "tests/unit/kvstore/codec/codec_data.h"
#include "tests/unit/kvstore/codec/quantised_extent.h"

namespace tandem::quantised_test::error_test {
namespace {

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

}  // namespace
}  // namespace tandem::quantised_test::error_test
