#include "kvstore/codec/packed_extent.h"

#include <vector>

#include "gtest/gtest.h"
#include "tests/unit/kvstore/codec/codec_data.h"

namespace tandem::packed_extent_test {
namespace {

constexpr int32_t kRoom = 16;

// Where a byte of a token's K or V lies in an extent of so many tokens.
size_t PlaceOf(const ExtentShape& shape, int32_t tokens, int32_t head, int32_t token,
               int32_t byte) {
  const int32_t token_bytes = static_cast<int32_t>(shape.head_dim * SizeOf(shape.dtype));
  return static_cast<size_t>(head * tokens + token) * static_cast<size_t>(token_bytes) +
         static_cast<size_t>(byte);
}

TEST(PackedExtentTest, EveryTokenIsWhereABlockOfThatManyHasIt) {
  const ExtentShape whole = {DType::kBF16, 3, 24, kRoom};
  const std::vector<std::byte> block = RandomBits(whole, 1);
  for (const int32_t tokens : {1, 2, 9, 15, 16}) {
    ExtentShape packed = whole;
    packed.tokens = tokens;
    std::vector<std::byte> out(packed.Bytes());
    PackTokens(packed, kRoom, block, out);
    for (int32_t head = 0; head < 2 * packed.num_kv_heads; ++head) {
      for (int32_t token = 0; token < tokens; ++token) {
        for (int32_t byte = 0; byte < 48; ++byte) {
          ASSERT_EQ(out[PlaceOf(packed, tokens, head, token, byte)],
                    block[PlaceOf(packed, kRoom, head, token, byte)])
              << tokens << " tokens: head " << head << ", token " << token;
        }
      }
    }
  }
}

TEST(PackedExtentTest, UnpackingChangesTheseTokensAlone) {
  const ExtentShape whole = {DType::kF32, 2, 8, kRoom};
  const ExtentShape packed = {DType::kF32, 2, 8, 5};
  const std::vector<std::byte> before = RandomBits(whole, 2);
  const std::vector<std::byte> tokens = RandomBits(packed, 3);
  std::vector<std::byte> block = before;
  UnpackTokens(packed, kRoom, tokens, block);
  std::vector<std::byte> again(packed.Bytes());
  PackTokens(packed, kRoom, block, again);
  EXPECT_EQ(again, tokens);
  for (int32_t head = 0; head < 4; ++head) {
    for (int32_t token = 5; token < kRoom; ++token) {
      const size_t at = PlaceOf(packed, kRoom, head, token, 0);
      ASSERT_EQ(block[at], before[at]) << "head " << head << ", token " << token;
    }
  }
}

}  // namespace
}  // namespace tandem::packed_extent_test
