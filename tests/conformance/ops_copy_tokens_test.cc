#include <algorithm>
#include <iterator>
#include <numeric>

#include "fmt/format.h"
#include "tests/support/ops_fixture.h"

// Tokens that are copied from slot to slot of the block pool, bit for bit.

namespace tandem::ops_copy_tokens_test {
namespace {

class CopyTokensTest : public OpsTest {
 protected:
  struct Shape {
    DType dtype = DType::kBF16;
    int32_t head_dim = 24;
    int32_t block_tokens = 8;
    int32_t num_blocks = 8;
    int32_t kv_heads = 3;
  };
  static constexpr int32_t kLayers = 3;

  // A plane is K or V of one head.
  static int64_t RowBytes(const KvPoolView& pool, int32_t plane) {
    const KvSide side = plane < pool.num_kv_heads ? KvSide::kKeys : KvSide::kValues;
    return KvRowBytes(pool.dtype, side, pool.head_dim);
  }
  // Where byte `i` of a token's row lies in the pool.
  static size_t ByteOf(const KvPoolView& pool, int32_t layer, int32_t slot, int32_t plane,
                       int64_t i) {
    int64_t at = (int64_t{layer} * pool.num_blocks + slot / pool.block_tokens) * pool.ExtentBytes();
    for (int32_t before = 0; before < plane; ++before) {
      at += RowBytes(pool, before) * pool.block_tokens;
    }
    return static_cast<size_t>(at + slot % pool.block_tokens * RowBytes(pool, plane) + i);
  }

  // The pool after CopyTokens is the one before but for the slots of `to`.
  void ExpectCopied(const Shape& shape, const std::vector<int32_t>& from,
                    const std::vector<int32_t>& to) {
    KvPoolView pool = {.dtype = shape.dtype,
                       .num_layers = kLayers,
                       .num_blocks = shape.num_blocks,
                       .num_kv_heads = shape.kv_heads,
                       .block_tokens = shape.block_tokens,
                       .head_dim = shape.head_dim};
    std::vector<std::byte> before(
        static_cast<size_t>(kLayers * shape.num_blocks * pool.ExtentBytes()));
    for (std::byte& byte : before) byte = static_cast<std::byte>(rng_());
    const DeviceArray memory = ToDevice(before);
    pool.data = static_cast<std::byte*>(memory.data());
    ASSERT_EQ(ops().CopyTokens(stream(), {pool, from, to}), absl::OkStatus());
    std::vector<std::byte> expected = before;
    for (int32_t layer = 0; layer < kLayers; ++layer) {
      for (size_t i = 0; i < to.size(); ++i) {
        for (int32_t plane = 0; plane < 2 * shape.kv_heads; ++plane) {
          const int32_t head = layer * shape.kv_heads + plane % shape.kv_heads;
          const int32_t source = from[static_cast<size_t>(head) * to.size() + i];
          for (int64_t j = 0; j < RowBytes(pool, plane); ++j) {
            expected[ByteOf(pool, layer, to[i], plane, j)] =
                before[ByteOf(pool, layer, source, plane, j)];
          }
        }
      }
    }
    EXPECT_TRUE(memory.Download<std::byte>() == expected);
  }

  // Tokens from anywhere to anywhere, in each KV head others, some of them read twice.
  void ExpectScatteredCopied(const Shape& shape) {
    std::vector<int32_t> slots(static_cast<size_t>(shape.num_blocks * shape.block_tokens));
    std::iota(slots.begin(), slots.end(), 0);
    std::shuffle(slots.begin(), slots.end(), rng_);
    const std::vector<int32_t> to(slots.begin(), slots.begin() + std::ssize(slots) / 3);
    std::vector<int32_t> from;
    for (size_t i = 0; i < static_cast<size_t>(kLayers * shape.kv_heads) * to.size(); ++i) {
      from.push_back(slots[to.size() + rng_() % (slots.size() - to.size())]);
    }
    ExpectCopied(shape, from, to);
  }
};

// Rows of 8 bytes and more, in 8s and in 16s; one head and several.
TEST_P(CopyTokensTest, ScatteredTokensOfEveryTypeComeToTheirSlots) {
  for (DType dtype : {DType::kF8E4M3, DType::kBF16, DType::kF16, DType::kF32}) {
    for (int32_t head_dim : {8, 24, 64, 120}) {
      SCOPED_TRACE(fmt::format("{} of {}", head_dim, Name(dtype)));
      ExpectScatteredCopied({.dtype = dtype, .head_dim = head_dim});
      ExpectScatteredCopied({.dtype = dtype,
                             .head_dim = head_dim,
                             .block_tokens = 32,
                             .num_blocks = 3,
                             .kv_heads = 1});
    }
  }
}

TEST_P(CopyTokensTest, RowsOfQuantisedKvAreCopiedWithTheirScales) {
  if (!GetParam().on_cpu()) GTEST_SKIP() << "GPUs refuse quantised KV";
  for (DType dtype : {DType::kK8V8, DType::kK6V5, DType::kK4V3}) {
    SCOPED_TRACE(Name(dtype));
    ExpectScatteredCopied({.dtype = dtype, .head_dim = 64});
    ExpectScatteredCopied({.dtype = dtype, .head_dim = 128, .block_tokens = 32, .num_blocks = 3});
  }
}

// Runs that begin and end inside blocks and go on in the next, on either side or on both.
TEST_P(CopyTokensTest, RunsOfSlotsGoOnFromBlockToBlock) {
  for (const auto& [first_to, num_tokens] : {std::pair(40, 24), {43, 21}, {47, 9}, {41, 1}}) {
    SCOPED_TRACE(first_to);
    std::vector<int32_t> to(static_cast<size_t>(num_tokens));
    std::iota(to.begin(), to.end(), first_to);
    std::vector<int32_t> from;
    for (const int32_t first_from : {0, 5, 13, 1, 7, 2, 9, 15, 11}) {  // one for each KV head
      for (int32_t i = 0; i < num_tokens; ++i) from.push_back(first_from + i);
    }
    ExpectCopied({.dtype = DType::kF8E4M3}, from, to);
    ExpectCopied({.dtype = DType::kBF16, .head_dim = 64}, from, to);
  }
}

// A context that loses tokens here and there is pushed together: what is kept stays in order.
TEST_P(CopyTokensTest, KeptTokensOfALongContextAreBroughtTogether) {
  const auto tokens = static_cast<int32_t>(Size(4096, 512));
  std::vector<int32_t> all(static_cast<size_t>(tokens));
  std::iota(all.begin(), all.end(), 0);
  std::vector<int32_t> from;
  const Shape shape = {
      .head_dim = 64, .block_tokens = 32, .num_blocks = 2 * tokens / 32, .kv_heads = 2};
  for (int32_t head = 0; head < kLayers * shape.kv_heads; ++head) {
    std::sample(all.begin(), all.end(), std::back_inserter(from), tokens / 4 * 3, rng_);
  }
  std::vector<int32_t> to(static_cast<size_t>(tokens / 4 * 3));
  std::iota(to.begin(), to.end(), tokens);
  for (int num_threads : ThreadCounts()) {
    UseThreads(num_threads);
    ExpectCopied(shape, from, to);
  }
}

TANDEM_INSTANTIATE_OPS_TEST(CopyTokensTest);

}  // namespace
}  // namespace tandem::ops_copy_tokens_test
