#include "kvstore/kv_convert.h"

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <span>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/registry.h"

namespace tandem::kv_convert_test {
namespace {

KvLayout Layout(int32_t block_tokens, DType dtype) {
  return {.num_layers = 1,
          .num_kv_heads = 2,
          .head_dim = 8,
          .block_tokens = block_tokens,
          .dtype = dtype};
}

struct Shape {
  int32_t from_tokens;
  int32_t to_tokens;
  TokenSpan wanted;
};

// What element (plane, token, i) of a sequence holds: all differ, none is what a place starts as.
uint16_t Element(int32_t plane, int32_t token, int32_t i) {
  return static_cast<uint16_t>(1 + (plane * 64 + token) * 8 + i);
}

size_t IndexOf(const KvLayout& layout, int32_t plane, int32_t token, int32_t i) {
  const int32_t row = plane * layout.block_tokens + token % layout.block_tokens;
  return static_cast<size_t>(row * layout.head_dim + i);
}

class BlockSizesTest : public testing::TestWithParam<Shape> {
 protected:
  static constexpr int32_t kTokens = 64;
  static constexpr int32_t kPlanes = 4;

  // One layer of block `block` of the sequence.
  std::vector<uint16_t> Extent(int32_t block) const {
    std::vector<uint16_t> extent(static_cast<size_t>(from_.ExtentBytes() / 2));
    for (int32_t plane = 0; plane < kPlanes; ++plane) {
      for (int32_t token = 0; token < from_.block_tokens; ++token) {
        for (int32_t i = 0; i < 8; ++i) {
          extent[IndexOf(from_, plane, token, i)] =
              Element(plane, block * from_.block_tokens + token, i);
        }
      }
    }
    return extent;
  }

  const KvLayout from_ = Layout(GetParam().from_tokens, DType::kBF16);
  const KvLayout to_ = Layout(GetParam().to_tokens, DType::kBF16);
};

// The blocks of the pool are the sequence's from the last to the first.
TEST_P(BlockSizesTest, EachTokenFindsItsPlaceAndTheOthersStay) {
  const TokenSpan wanted = GetParam().wanted;
  std::vector<int32_t> blocks(kTokens / to_.block_tokens);
  std::iota(blocks.rbegin(), blocks.rend(), 0);
  std::vector<uint16_t> memory(static_cast<size_t>(to_.ExtentBytes() / 2) * blocks.size());
  const KvPoolView pool = to_.PoolView(reinterpret_cast<std::byte*>(memory.data()),
                                       static_cast<int32_t>(blocks.size()));
  std::vector<std::vector<uint16_t>> extents;
  std::vector<KvRun> runs;
  for (int32_t block = 0; block < kTokens / from_.block_tokens; ++block) {
    extents.push_back(Extent(block));
    const auto bytes = std::as_bytes(std::span<const uint16_t>(extents.back()));
    AppendRuns(from_, {.bytes = bytes, .block = block}, wanted, to_, blocks, runs);
  }
  const auto backend = OpenBackend("cpu", {.num_threads = 1});
  ASSERT_TRUE(backend.ok()) << backend.status();
  const auto stream = backend->device->NewStream();
  ASSERT_TRUE(stream.ok()) << stream.status();
  ASSERT_EQ(backend->ops->ConvertKv(**stream, {.pool = pool,
                                               .src_dtype = from_.dtype,
                                               .src_block_tokens = from_.block_tokens,
                                               .runs = runs}),
            absl::OkStatus());
  for (int32_t plane = 0; plane < kPlanes; ++plane) {
    for (int32_t token = 0; token < kTokens; ++token) {
      const bool moved = token >= wanted.begin && token < wanted.end;
      const auto block = blocks[static_cast<size_t>(token / to_.block_tokens)];
      const auto* place = reinterpret_cast<const uint16_t*>(pool.Extent(0, block));
      for (int32_t i = 0; i < 8; ++i) {
        EXPECT_EQ(place[IndexOf(to_, plane, token, i)], moved ? Element(plane, token, i) : 0)
            << "plane " << plane << " token " << token;
      }
    }
  }
}

INSTANTIATE_TEST_SUITE_P(All, BlockSizesTest,
                         testing::Values(Shape{8, 8, {0, 64}}, Shape{8, 16, {0, 64}},
                                         Shape{8, 64, {16, 61}}, Shape{16, 8, {8, 64}},
                                         Shape{16, 64, {0, 50}}, Shape{32, 16, {16, 33}},
                                         Shape{64, 8, {24, 63}}, Shape{64, 32, {32, 64}}));

}  // namespace
}  // namespace tandem::kv_convert_test
