// By how much values may differ when they come back rounded, and how many bits they take.

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/kvstore/codec/rounded_extent.h"

namespace tandem::rounded_test::error_test {
namespace {

// Tables of f32 KV whose channels all have a spread of about 1.
std::shared_ptr<const CodecTables> TablesOfNormal(const KvSensitivity& sensitivity = {},
                                                  int32_t layers = 1) {
  const ExtentShape shape = {DType::kF32, 2, 64, 256};
  CodecCalibrator calibrator(shape, layers);
  for (int32_t layer = 0; layer < layers; ++layer) {
    calibrator.Add(layer, BytesOf(Normal(shape.Bytes() / sizeof(float), 3)));
  }
  return std::make_shared<const CodecTables>(calibrator.Build(sensitivity));
}
constexpr ExtentShape kNormalShape = {DType::kF32, 2, 64, 64};

TEST_F(RoundedTest, NoErrorIsAboveHalfAStep) {
  const auto tables = TablesOfNormal();
  const Bytes raw = BytesOf(Normal(kNormalShape.Bytes() / sizeof(float), 5));
  const std::vector<double> before = ValuesOf(DType::kF32, raw);
  for (const float step : {0.01f, 0.05f, 0.2f, 0.8f}) {
    const auto codec = NewRoundedCodec(tables, step);
    const auto after = ValuesOf(DType::kF32, BackAndForth(*codec, kNormalShape, raw));
    double largest = 0;
    for (size_t i = 0; i < before.size(); ++i) {
      const size_t side = i < before.size() / 2 ? 0 : 1;
      const double most = step * tables->Of(0, static_cast<int32_t>(side)).spread / 2;
      ASSERT_LE(std::abs(after[i] - before[i]), most * (1 + 1e-4)) << step;
      largest = std::max(largest, std::abs(after[i] - before[i]) / most);
    }
    EXPECT_GT(largest, 0.99) << "the bound says nothing at a step of " << step;
  }
}

// The entropy of normal values in steps is log2(4.13 / step) bits. Rice's code takes at most a quarter of
// a bit more.
TEST_F(RoundedTest, NormalValuesTakeLittleMoreThanTheirEntropy) {
  const auto tables = TablesOfNormal();
  const Bytes raw = BytesOf(Normal(kNormalShape.Bytes() / sizeof(float), 5));
  for (const float step : {0.02f, 0.03f, 0.1f, 0.15f, 0.4f, 0.6f, 1.0f}) {
    const Bytes payload = Encoded(*NewRoundedCodec(tables, step), kNormalShape, raw);
    const double bits =
        32.0 * static_cast<double>(payload.size()) / static_cast<double>(raw.size());
    const double entropy = std::log2(4.13 / step);
    EXPECT_LT(bits, entropy + 0.25) << step;
    EXPECT_GT(bits, entropy) << step;
  }
}

// A layer that predictions depend on 16 times as much as on another is rounded in steps of a quarter.
TEST_F(RoundedTest, SensitiveLayersAreRoundedInFinerSteps) {
  const Bytes raw = BytesOf(Normal(kNormalShape.Bytes() / sizeof(float), 5));
  const std::vector<double> before = ValuesOf(DType::kF32, raw);
  const size_t half = before.size() / 2;
  const auto codec = NewRoundedCodec(TablesOfNormal({.k = {16, 1}, .v = {1, 1}}, 2), 0.2f);
  const auto errors = [&](int32_t layer) {
    Bytes payload(raw.size());
    Bytes back(raw.size());
    const auto size = codec->Encode(kNormalShape, {.layer = layer}, raw, payload);
    EXPECT_TRUE(
        codec->Decode(kNormalShape, layer, std::span(payload).first(size.value_or(0)), back));
    const std::vector<double> after = ValuesOf(DType::kF32, back);
    return std::vector<double>{
        Error(std::span(before).first(half), std::span(after).first(half)),
        Error(std::span(before).subspan(half), std::span(after).subspan(half))};
  };
  const std::vector<double> first = errors(0);
  const std::vector<double> second = errors(1);
  EXPECT_NEAR(second[0] / first[0], 4, 0.1);
  EXPECT_NEAR(second[0] / second[1], 1, 0.05);
  EXPECT_NEAR(first[1] / second[1], 1, 0.05);
  // The geometric mean of the four steps is that of the class.
  const double spread = second[1] * std::sqrt(12) / 0.2;
  EXPECT_NEAR(spread, 2.0 / std::sqrt(2), 0.05);
}

TEST_F(RoundedTest, EveryShapeComesBackNearly) {
  for (int32_t head_dim = 8; head_dim <= 256; head_dim += 8) {
    for (int32_t tokens = 1; tokens <= 64; tokens += head_dim % 64 == 0 ? 1 : 21) {
      const ExtentShape shape = {DType::kBF16, 1, head_dim, tokens};
      const Bytes raw = LikeKv(shape, 3);
      const Bytes back = BackAndForth(*CodecFor(shape, 0.01f), shape, raw);
      const std::vector<double> before = ValuesOf(shape.dtype, raw);
      const std::vector<double> zeros(before.size());
      ASSERT_LT(Error(before, ValuesOf(shape.dtype, back)), 0.02 * Error(before, zeros))
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
  const CodecTables tables = TablesFor(narrow, 1);
  const auto of = [&](const ExtentShape& shape) {
    return NewRoundedCodec(
        std::make_shared<const CodecTables>(shape, std::vector{tables.Of(0, 0), tables.Of(0, 1)}),
        0.2f);
  };
  const Bytes raw = LikeKv(narrow, 4);
  std::vector<float> values;
  for (const double value : ValuesOf(dtype, raw)) values.push_back(static_cast<float>(value));
  const auto expected = ValuesOf(DType::kF32, BackAndForth(*of(wide), wide, BytesOf(values)));
  const Bytes back = BackAndForth(*of(narrow), narrow, raw);
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
TEST_F(RoundedTest, NarrowTypesAreRoundedToTheNearest) {
  ExpectRounded<BF16Fields>(DType::kBF16);
  ExpectRounded<F16Fields>(DType::kF16);
}

// An error may move the largest f16 beyond what is one, and it must not become infinite.
TEST_F(RoundedTest, TheLargestF16StayFinite) {
  const ExtentShape shape = {DType::kF16, 1, 64, 16};
  Bytes raw(shape.Bytes());
  std::mt19937_64 random(1);
  for (size_t at = 0; at < raw.size(); at += 2) {
    const auto word = static_cast<uint16_t>(random() % 2 == 0 ? 0x7bff : 0xfbff);
    std::memcpy(raw.data() + at, &word, sizeof(word));
  }
  CodecCalibrator calibrator(shape, 1);
  calibrator.Add(0, raw);
  const auto codec = NewRoundedCodec(std::make_shared<const CodecTables>(calibrator.Build()), 0.7f);
  const auto after = ValuesOf(shape.dtype, BackAndForth(*codec, shape, raw));
  EXPECT_EQ(std::ranges::max(after), 65504);
  EXPECT_GT(std::ranges::count(after, 65504), 100) << "hardly any is beyond the largest";
}

// Some channels of K have large values that hardly differ from token to token. They must not make the
// steps of the others coarser.
TEST_F(RoundedTest, AChannelFarFromZeroTakesNoPrecision) {
  const ExtentShape shape = {DType::kF32, 1, 64, 64};
  std::vector<float> values = Normal(shape.Bytes() / sizeof(float), 6);
  const auto error = [&] {
    const Bytes raw = BytesOf(values);
    CodecCalibrator calibrator(shape, 1);
    calibrator.Add(0, raw);
    const auto codec =
        NewRoundedCodec(std::make_shared<const CodecTables>(calibrator.Build()), 0.3f);
    return Error(ValuesOf(shape.dtype, raw),
                 ValuesOf(shape.dtype, BackAndForth(*codec, shape, raw)));
  };
  const double before = error();
  for (size_t i = 17; i < values.size(); i += 64) values[i] += 500;
  EXPECT_NEAR(error() / before, 1, 0.05);
}

}  // namespace
}  // namespace tandem::rounded_test::error_test
