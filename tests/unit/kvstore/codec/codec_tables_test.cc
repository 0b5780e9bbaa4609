#include "kvstore/codec/codec_tables.h"

#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/kvstore/codec/codec_data.h"

namespace tandem::codec_tables_test {
namespace {

constexpr ExtentShape kTablesShape = {DType::kBF16, 3, 40, 16};
constexpr int32_t kTablesLayers = 4;
constexpr size_t kTablesHeader = 12;
constexpr size_t kSideBytes = 3 * 40 + CodecTables::kNumDistances;

std::vector<std::byte> SomeTables() { return TablesFor(kTablesShape, kTablesLayers).Serialize(); }

absl::StatusCode ParseCode(const std::vector<std::byte>& bytes) {
  return CodecTables::Parse(bytes, kTablesShape, kTablesLayers).status().code();
}

TEST(CodecTablesTest, TheyComeBackFromBytes) {
  const CodecTables tables = TablesFor(kTablesShape, kTablesLayers);
  const std::vector<std::byte> bytes = tables.Serialize();
  EXPECT_EQ(bytes.size(), CodecTables::SerializedBytes(kTablesShape, kTablesLayers));
  EXPECT_EQ(bytes.size(), kTablesHeader + 2 * kTablesLayers * kSideBytes);
  const auto back = CodecTables::Parse(bytes, kTablesShape, kTablesLayers);
  ASSERT_TRUE(back.ok()) << back.status();
  EXPECT_EQ(back->id(), tables.id());
  for (int32_t layer = 0; layer < kTablesLayers; ++layer) {
    for (int32_t side = 0; side < 2; ++side) {
      EXPECT_EQ(back->Of(layer, side).tops, tables.Of(layer, side).tops);
      EXPECT_EQ(back->Of(layer, side).ranks, tables.Of(layer, side).ranks);
      EXPECT_EQ(back->Of(layer, side).distances, tables.Of(layer, side).distances);
    }
  }
}

TEST(CodecTablesTest, OtherTablesHaveOtherIds) {
  std::vector<std::byte> bytes = SomeTables();
  const uint64_t id = CodecTables::Parse(bytes, kTablesShape, kTablesLayers)->id();
  bytes[kTablesHeader + 5] ^= std::byte{1};  // the top of a channel
  EXPECT_NE(CodecTables::Parse(bytes, kTablesShape, kTablesLayers)->id(), id);
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

}  // namespace
}  // namespace tandem::codec_tables_test
