#include "kvstore/codec/codec_tables.h"

#include <cmath>
#include <cstring>
#include <limits>
#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/kvstore/codec/codec_data.h"

namespace tandem::codec_tables_test {
namespace {

constexpr ExtentShape kTablesShape = {DType::kBF16, 3, 40, 16};
constexpr int32_t kTablesLayers = 4;
constexpr size_t kTablesHeader = 12;
// Tops and ranks; then centres, spreads, the spread of the side and its weight.
constexpr size_t kLosslessBytes = 3 * 40 + CodecTables::kNumDistances;
constexpr size_t kSideBytes = kLosslessBytes + 2 * 2 * 3 * 40 + 2 * 4;
constexpr auto kRounding = CodecTables::Use::kRounding;
constexpr auto kLossless = CodecTables::Use::kLossless;

std::vector<std::byte> SomeTables() {
  return TablesFor(kTablesShape, kTablesLayers).Serialize(kRounding);
}

absl::StatusCode ParseCode(const std::vector<std::byte>& bytes) {
  return CodecTables::Parse(bytes, kTablesShape, kTablesLayers).status().code();
}

TEST(CodecTablesTest, TheyComeBackFromBytes) {
  const CodecTables tables = TablesFor(kTablesShape, kTablesLayers);
  const std::vector<std::byte> bytes = tables.Serialize(kRounding);
  EXPECT_EQ(bytes.size(), CodecTables::SerializedBytes(kTablesShape, kTablesLayers, kRounding));
  EXPECT_EQ(bytes.size(), kTablesHeader + 2 * kTablesLayers * kSideBytes);
  const auto back = CodecTables::Parse(bytes, kTablesShape, kTablesLayers);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->id(), tables.id());
  EXPECT_EQ(back->rounding_id(), tables.rounding_id());
  EXPECT_TRUE(back->for_rounding());
  for (int32_t layer = 0; layer < kTablesLayers; ++layer) {
    for (int32_t side = 0; side < 2; ++side) {
      EXPECT_EQ(back->Of(layer, side).tops, tables.Of(layer, side).tops);
      EXPECT_EQ(back->Of(layer, side).ranks, tables.Of(layer, side).ranks);
      EXPECT_EQ(back->Of(layer, side).distances, tables.Of(layer, side).distances);
      EXPECT_EQ(back->Of(layer, side).centres, tables.Of(layer, side).centres);
      EXPECT_EQ(back->Of(layer, side).spreads, tables.Of(layer, side).spreads);
      EXPECT_EQ(back->Of(layer, side).spread, tables.Of(layer, side).spread);
      EXPECT_EQ(back->Of(layer, side).weight, tables.Of(layer, side).weight);
    }
  }
}

// A peer that decodes no rounded KV gets what a build before the codec that rounds reads: the same bytes
// with the same id.
TEST(CodecTablesTest, TablesForLosslessCodecsAreShorterAndHaveTheSameId) {
  const CodecTables tables = TablesFor(kTablesShape, kTablesLayers);
  const std::vector<std::byte> bytes = tables.Serialize(kLossless);
  EXPECT_EQ(bytes.size(), kTablesHeader + 2 * kTablesLayers * kLosslessBytes);
  EXPECT_EQ(bytes.size(), CodecTables::SerializedBytes(kTablesShape, kTablesLayers, kLossless));
  const auto back = CodecTables::Parse(bytes, kTablesShape, kTablesLayers);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->id(), tables.id());
  EXPECT_FALSE(back->for_rounding());
  std::vector<std::byte> other = bytes;
  std::memcpy(other.data(), SomeTables().data(), 4);
  EXPECT_EQ(ParseCode(other), absl::StatusCode::kInvalidArgument) << "the magic of the longer ones";
}

TEST(CodecTablesTest, OtherTablesHaveOtherIds) {
  const auto before = CodecTables::Parse(SomeTables(), kTablesShape, kTablesLayers);
  const size_t centres = kTablesHeader + 3 * 40 + CodecTables::kNumDistances;
  // The top of a channel, its centre, its spread, the spread of its side, and the weight.
  for (const size_t at : {kTablesHeader + 5, centres + 10, centres + 2 * 3 * 40 + 10,
                          centres + 4 * 3 * 40, centres + 4 * 3 * 40 + 4}) {
    std::vector<std::byte> bytes = SomeTables();
    bytes[at] ^= std::byte{1};
    const auto after = CodecTables::Parse(bytes, kTablesShape, kTablesLayers);
    EXPECT_NE(after->rounding_id(), before->rounding_id()) << at;
    EXPECT_EQ(after->id() == before->id(), at >= centres) << at;
  }
}

TEST(CodecTablesTest, BytesOfAnotherSizeShapeOrMagicAreRefused) {
  std::vector<std::byte> bytes = SomeTables();
  bytes.pop_back();
  EXPECT_EQ(ParseCode(bytes), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(ParseCode({}), absl::StatusCode::kInvalidArgument);
  for (size_t at = 0; at < kTablesHeader; ++at) {
    bytes = SomeTables();
    bytes[at] ^= std::byte{1};
    EXPECT_EQ(ParseCode(bytes), absl::StatusCode::kInvalidArgument) << at;
  }
}

// A decoder that took such ranks would look up distances that were never set.
TEST(CodecTablesTest, RanksThatAreMissingTwiceOrOutOfRangeAreRefused) {
  const size_t ranks = kTablesHeader + 3 * 40;
  const auto with_rank = [&](size_t distance, uint8_t rank) {
    std::vector<std::byte> bytes = SomeTables();
    bytes[ranks + distance] = static_cast<std::byte>(rank);
    return ParseCode(bytes);
  };
  const CodecTables::Side side = TablesFor(kTablesShape, kTablesLayers).Of(0, 0);
  const size_t first = side.distances[0];
  EXPECT_EQ(with_rank(first, 0), absl::StatusCode::kOk);
  EXPECT_EQ(with_rank(first, CodecTables::kNoRank), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(with_rank(first, 1), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(with_rank(first, 15), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(with_rank(0, 0), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(with_rank(63, 0), absl::StatusCode::kInvalidArgument);
}

// Exponents 120, 119 and 118 are about as frequent in all channels; which of the first two is more
// frequent is chance in the last channel. With the distances of the others it is coded in fewer bits
// than with its own most frequent exponent at their place.
TEST(CodecTablesTest, TopsFollowTheRanksOfAllChannels) {
  const ExtentShape shape = {DType::kBF16, 1, 8, 20};
  std::vector<uint16_t> words;
  for (size_t i = 0; i < 2 * 20 * 8; ++i) {
    const size_t token = i / 8 % 20;
    const size_t more = i % 8 == 7 ? 7 : 9;  // of 16 tokens so many have exponent 120
    const uint16_t exponent = token < more ? 120 : token < 16 ? 119 : 118;
    words.push_back(static_cast<uint16_t>(exponent << 7));
  }
  CodecCalibrator calibrator(shape, 1);
  calibrator.Add(0, std::as_bytes(std::span(words)));
  const CodecTables tables = calibrator.Build();
  for (int32_t side = 0; side < 2; ++side) {
    EXPECT_EQ(tables.Of(0, side).tops, std::vector<uint8_t>(8, 120 + 16));
  }
}

TEST(CodecTablesTest, CentresAndSpreadsAreThoseOfTheChannels) {
  const ExtentShape shape = {DType::kF32, 1, 8, 4};
  std::vector<float> values(2 * 4 * 8);
  for (size_t token = 0; token < 4; ++token) {
    values[token * 8 + 3] = token % 2 == 0 ? 5 : 9;
    values[32 + token * 8] = token < 2 ? -3 : 1;
  }
  values[8 + 6] = std::numeric_limits<float>::infinity();  // not counted
  const auto bytes = std::as_bytes(std::span(values));
  CodecCalibrator calibrator(shape, 1);
  calibrator.Add(0, bytes);
  const CodecTables tables = calibrator.Build();
  const CodecTables::Side& k = tables.Of(0, 0);
  const CodecTables::Side& v = tables.Of(0, 1);
  EXPECT_EQ(FloatOfBFloat(k.centres[3]), 7);
  EXPECT_EQ(FloatOfBFloat(k.spreads[3]), 2);
  EXPECT_EQ(FloatOfBFloat(k.centres[6]), 0);
  EXPECT_EQ(FloatOfBFloat(k.spreads[6]), 0);
  EXPECT_EQ(FloatOfBFloat(v.centres[0]), -1);
  EXPECT_EQ(FloatOfBFloat(v.spreads[0]), 2);
  EXPECT_NEAR(k.spread, 2 / std::sqrt(8), 0.005);
  EXPECT_EQ(k.weight, 1);
}

TEST(CodecTablesTest, F16AndBF16HaveTheSameCentresAsF32) {
  const ExtentShape shape = {DType::kF16, 1, 8, 1};
  const std::vector<uint16_t> half = {0x3c00, 0xc000, 0x0001, 0x8400, 0x7bff, 0x4248, 0, 0x8000};
  const std::vector<double> values = ValuesOf(DType::kF16, std::as_bytes(std::span(half)));
  std::vector<uint16_t> both = half;
  both.insert(both.end(), half.begin(), half.end());
  CodecCalibrator calibrator(shape, 1);
  calibrator.Add(0, std::as_bytes(std::span(both)));
  const CodecTables tables = calibrator.Build();
  for (size_t i = 0; i < half.size(); ++i) {
    EXPECT_NEAR(FloatOfBFloat(tables.Of(0, 0).centres[i]), values[i], std::abs(values[i]) / 256);
  }
}

TEST(CodecTablesTest, NumbersThatNoCodecCanRoundWithAreRefused) {
  const size_t centres = kTablesHeader + 3 * 40 + CodecTables::kNumDistances;
  const auto with_word = [&](size_t at, uint16_t word) {
    std::vector<std::byte> bytes = SomeTables();
    std::memcpy(bytes.data() + at, &word, sizeof(word));
    return ParseCode(bytes);
  };
  EXPECT_EQ(with_word(centres, 0xbf80), absl::StatusCode::kOk) << "a centre of -1";
  EXPECT_EQ(with_word(centres, 0x7f80), absl::StatusCode::kInvalidArgument) << "an infinite one";
  const size_t spreads = centres + 2 * 3 * 40;
  EXPECT_EQ(with_word(spreads, 0x7fc0), absl::StatusCode::kInvalidArgument) << "NaN";
  EXPECT_EQ(with_word(spreads, 0xbf80), absl::StatusCode::kInvalidArgument) << "a spread of -1";
  const size_t numbers = spreads + 2 * 3 * 40 + 2;  // the upper halves of two floats
  EXPECT_EQ(with_word(numbers, 0x7f80), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(with_word(numbers, 0xbf80), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(with_word(numbers + 4, 0x7fc0), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(with_word(numbers + 4, 0xbf80), absl::StatusCode::kInvalidArgument);
}

}  // namespace
}  // namespace tandem::codec_tables_test
