#include <algorithm>
#include <cmath>
#include <limits>
#include <string>

#include "fmt/format.h"
#include "tests/support/ops_fixture.h"
#include "tests/support/reference_kv.h"
#include "tests/support/reference_ops.h"

// What is written into pools of quantised types (base/kv_row.h) and moved in them, bit for bit.

namespace tandem::ops_quantised_kv_test {
namespace {

constexpr DType kTypes[] = {DType::kK8V8, DType::kK6V5, DType::kK4V3};
constexpr int32_t kHeads = 2;
constexpr int32_t kHeadDim = 128;
constexpr int64_t kRow = int64_t{kHeads} * kHeadDim;  // channels of one token
constexpr KvSide kSides[] = {KvSide::kKeys, KvSide::kValues};

class QuantisedKvTest : public OpsTest {
 protected:
  static KvPoolView View(void* data, DType dtype, int32_t block_tokens = 8,
                         int32_t num_blocks = 5) {
    return {.data = static_cast<std::byte*>(data),
            .dtype = dtype,
            .num_layers = 2,
            .num_blocks = num_blocks,
            .num_kv_heads = kHeads,
            .block_tokens = block_tokens,
            .head_dim = kHeadDim};
  }
  static size_t PoolBytes(const KvPoolView& view) {
    return static_cast<size_t>(view.num_layers * view.num_blocks * view.ExtentBytes());
  }

  // Heads of every kind: of one magnitude, with a few large channels, all zero, so small that their
  // scale has few bits, large, and with what no scale fits.
  std::vector<float> Heads(int64_t tokens) {
    std::vector<float> x = Random(tokens * kRow);
    const auto head = [&](int64_t index) {
      return std::span(x).subspan(index * kHeadDim, kHeadDim);
    };
    const float scales[] = {1, 1e-7f, 3e4f, 30};
    for (int64_t i = 0; i < tokens * kHeads; ++i) {
      for (float& value : head(i)) value *= scales[i % 4];
      head(i)[static_cast<size_t>(i * 7 % kHeadDim)] *= 50;
    }
    std::ranges::fill(head(1), 0.0f);
    std::ranges::fill(head(2), -0.0f);
    head(3)[70] = std::numeric_limits<float>::quiet_NaN();
    head(4)[5] = -std::numeric_limits<float>::infinity();
    head(5)[127] = 3e38f;
    head(6)[0] = 1e8f;
    std::ranges::fill(head(7), 1.0f);
    return x;
  }

  void Store(const KvPoolView& pool, const std::vector<float>& k, const std::vector<float>& v,
             const std::vector<int64_t>& slots, int32_t layer) {
    const DeviceArray dk = ToDevice(k), dv = ToDevice(v);
    const auto tokens = static_cast<int64_t>(slots.size());
    const absl::Status status =
        ops().StoreKv(stream(), {.k = Tensor(dk, {tokens, kHeads, kHeadDim}),
                                 .v = Tensor(dv, {tokens, kHeads, kHeadDim}),
                                 .slots = slots,
                                 .pool = pool,
                                 .layer = layer});
    ASSERT_EQ(status, absl::OkStatus());
  }

  // As Store, by the reference, in host memory.
  static void Expect(const KvPoolView& pool, const std::vector<float>& k,
                     const std::vector<float>& v, const std::vector<int64_t>& slots,
                     int32_t layer) {
    for (size_t t = 0; t < slots.size(); ++t) {
      if (slots[t] < 0) continue;
      for (const KvSide side : kSides) {
        for (int32_t head = 0; head < kHeads; ++head) {
          const auto values =
              std::span(side == KvSide::kKeys ? k : v)
                  .subspan(t * kRow + static_cast<size_t>(head) * kHeadDim, kHeadDim);
          const auto block = static_cast<int32_t>(slots[t] / pool.block_tokens);
          reference::StoreRow(
              pool, side, values,
              pool.Extent(layer, block) + pool.RowAt(side, head, slots[t] % pool.block_tokens));
        }
      }
    }
  }
};

TEST_P(QuantisedKvTest, RowsTakeTheBytesOfTheirBits) {
  const auto head_bytes = [](DType dtype) { return KvHeadBytes(dtype, kHeadDim); };
  EXPECT_EQ(head_bytes(DType::kBF16), 512);
  EXPECT_EQ(head_bytes(DType::kK8V8), 2 * (66 + 66));
  EXPECT_EQ(head_bytes(DType::kK6V5), 2 * (50 + 42));
  EXPECT_EQ(head_bytes(DType::kK4V3), 2 * (34 + 26));
  const KvPoolView pool = View(nullptr, DType::kK4V3);
  EXPECT_EQ(pool.RowAt(KvSide::kKeys, 1, 3), (8 + 3) * 2 * 34);
  EXPECT_EQ(pool.RowAt(KvSide::kValues, 1, 3), 2 * 8 * 2 * 34 + (8 + 3) * 2 * 26);
  EXPECT_EQ(pool.ExtentBytes(), pool.RowAt(KvSide::kValues, 2, 0));
}

// Every target writes what the reference does, and only there.
TEST_P(QuantisedKvTest, StoreKvWritesTheReferencesBits) {
  const std::vector<int64_t> slots = {39, -1, 0, 17, 22, 23, 1, 8};
  for (DType dtype : kTypes) {
    SCOPED_TRACE(Name(dtype));
    const std::vector<float> k = Heads(8), v = Heads(8);
    std::vector<std::byte> expected(PoolBytes(View(nullptr, dtype)), std::byte{0x5c});
    const DeviceArray memory = ToDevice(expected);
    Store(View(memory.data(), dtype), k, v, slots, 1);
    Expect(View(expected.data(), dtype), k, v, slots, 1);
    EXPECT_EQ(memory.Download<std::byte>(), expected);
  }
}

// In float64 and apart from how bits lie: no channel of a rotated group is further from its integer
// than half a scale, and with the next smaller scale the largest integer would be exceeded.
TEST_P(QuantisedKvTest, RoundingLosesNoMoreThanHalfAScale) {
  for (DType dtype : kTypes) {
    const std::vector<float> x = Random(20 * kRow);
    std::vector<int64_t> slots;
    for (int64_t i = 0; i < 20; ++i) slots.push_back(i);
    const KvPoolView shape = View(nullptr, dtype);
    const DeviceArray memory = ToDevice(std::vector<std::byte>(PoolBytes(shape)));
    Store(View(memory.data(), dtype), x, x, slots, 0);
    std::vector<std::byte> stored = memory.Download<std::byte>();
    const KvPoolView pool = View(stored.data(), dtype);
    for (const KvSide side : kSides) {
      const int most_code = (1 << (KvBits(dtype, side) - 1)) - 1;
      for (int32_t i = 0; i < 20 * kHeads; ++i) {
        SCOPED_TRACE(fmt::format("{} side {} row {}", Name(dtype), static_cast<int>(side), i));
        const auto first = x.begin() + int64_t{i} * kHeadDim;
        const std::vector<double> exact(first, first + kHeadDim);
        const int32_t token = i / kHeads;
        const std::byte* row = pool.Extent(0, token / 8) + pool.RowAt(side, i % kHeads, token % 8);
        const std::vector<double> before = reference::Rotated(exact);
        const std::vector<double> after = reference::Rotated(reference::LoadRow(pool, side, row));
        for (int group = 0; group < 2; ++group) {
          const double scale = reference::ScaleOfGroup(pool, side, row, group);
          double most = 0;
          for (size_t c = 64 * group; c < 64u * group + 64; ++c) {
            ASSERT_LE(std::fabs(after[c] - before[c]), scale * 0.5001) << c;
            most = std::max(most, std::fabs(before[c]));
          }
          ASSERT_LE(most, most_code * scale * 1.0001);
          ASSERT_GE(most, most_code * scale * (1 - 0x1p-10) * 0.9999);
        }
      }
    }
  }
}

// One that is not finite shows in all that is computed from it, and in nothing else.
TEST_P(QuantisedKvTest, WhatNoScaleFitsIsNaN) {
  for (DType dtype : kTypes) {
    const DeviceArray memory = ToDevice(std::vector<std::byte>(PoolBytes(View(nullptr, dtype))));
    std::vector<float> x(kRow, 1.0f);
    x[70] = std::numeric_limits<float>::infinity();
    Store(View(memory.data(), dtype), x, x, {0}, 0);
    std::vector<std::byte> stored = memory.Download<std::byte>();
    const KvPoolView pool = View(stored.data(), dtype);
    for (const KvSide side : kSides) {
      const std::vector<double> row =
          reference::LoadRow(pool, side, pool.Extent(0, 0) + pool.RowAt(side, 0, 0));
      for (size_t i = 0; i < 64; ++i) ASSERT_NEAR(row[i], 1, 1e-2);
      for (size_t i = 64; i < 128; ++i) ASSERT_TRUE(std::isnan(row[i]));
    }
  }
}

TEST_P(QuantisedKvTest, RopeStoreKvEqualsRopeThenStoreKv) {
  const std::vector<int32_t> positions = {5, 0, 7, 3};
  const std::vector<int64_t> slots = {39, -1, 0, 17};
  const DeviceArray cos = ToDevice(Random(8 * 64)), sin = ToDevice(Random(8 * 64));
  for (DType dtype : kTypes) {
    SCOPED_TRACE(Name(dtype));
    const std::vector<float> q = Random(4 * kRow), k = Random(4 * kRow), v = Random(4 * kRow);
    const DeviceArray dv = ToDevice(v);
    std::vector<std::vector<std::byte>> pools;
    for (const bool one_pass : {false, true}) {
      const DeviceArray dq = ToDevice(q), dk = ToDevice(k);
      const DeviceArray memory = ToDevice(std::vector<std::byte>(PoolBytes(View(nullptr, dtype))));
      const RopeArgs rope = {.q = Tensor(dq, {4, kHeads, kHeadDim}),
                             .k = Tensor(dk, {4, kHeads, kHeadDim}),
                             .positions = positions,
                             .cos = Tensor(cos, {8, 64}),
                             .sin = Tensor(sin, {8, 64})};
      const StoreKvArgs store = {.k = rope.k,
                                 .v = Tensor(dv, {4, kHeads, kHeadDim}),
                                 .slots = slots,
                                 .pool = View(memory.data(), dtype),
                                 .layer = 1};
      if (one_pass) {
        ASSERT_EQ(ops().RopeStoreKv(stream(), rope, store), absl::OkStatus());
      } else {
        ASSERT_EQ(ops().Rope(stream(), rope), absl::OkStatus());
        ASSERT_EQ(ops().StoreKv(stream(), store), absl::OkStatus());
      }
      pools.push_back(memory.Download<std::byte>());
    }
    EXPECT_EQ(pools[0], pools[1]);
  }
}

// Blocks are moved as bytes.
TEST_P(QuantisedKvTest, CopyGatherAndScatterMoveWholeExtents) {
  for (DType dtype : kTypes) {
    SCOPED_TRACE(Name(dtype));
    std::vector<std::byte> expected(PoolBytes(View(nullptr, dtype)));
    for (std::byte& byte : expected) byte = static_cast<std::byte>(rng_());
    const DeviceArray memory = ToDevice(expected);
    const KvPoolView pool = View(memory.data(), dtype);
    const KvPoolView host = View(expected.data(), dtype);
    const auto extent = static_cast<size_t>(pool.ExtentBytes());
    const BlockPair pairs[] = {{0, 3}, {2, 4}};
    ASSERT_EQ(ops().CopyBlocks(stream(), {pool, pairs}), absl::OkStatus());
    const LayerBlock items[] = {{1, 1}, {0, 3}};
    const DeviceArray staging = ToDevice(std::vector<std::byte>(2 * extent));
    const std::span<std::byte> bytes(static_cast<std::byte*>(staging.data()), 2 * extent);
    ASSERT_EQ(ops().GatherBlocks(stream(), {pool, items, bytes}), absl::OkStatus());
    const LayerBlock others[] = {{1, 2}, {0, 1}};
    ASSERT_EQ(ops().ScatterBlocks(stream(), {pool, others, bytes}), absl::OkStatus());
    const auto copy = [&](LayerBlock from, LayerBlock to) {
      std::copy_n(host.Extent(from.layer, from.block), extent, host.Extent(to.layer, to.block));
    };
    for (const int32_t layer : {0, 1}) {
      copy({layer, 0}, {layer, 3});
      copy({layer, 2}, {layer, 4});
    }
    copy(items[0], others[0]);
    copy(items[1], others[1]);
    EXPECT_EQ(memory.Download<std::byte>(), expected);
  }
}

// KV that comes as numbers is rounded as StoreKv rounds it, KV of the same type keeps every bit;
// blocks of other sizes, runs that begin and end anywhere, and tokens around them that stay.
TEST_P(QuantisedKvTest, ConvertKvRoundsAsStoreKvDoes) {
  constexpr int32_t kTokens = 5;
  for (DType dtype : kTypes) {
    for (DType from : {DType::kF32, DType::kF16, DType::kBF16, dtype}) {
      for (const auto& [from_block, to_block] : {std::pair(8, 8), {16, 8}, {8, 32}}) {
        SCOPED_TRACE(
            fmt::format("{} of {} to {} of {}", Name(from), from_block, Name(dtype), to_block));
        const DType numbers = from == dtype ? DType::kF32 : from;
        const std::vector<float> k = Rounded(numbers, Random(kTokens * kRow));
        const std::vector<float> v = Rounded(numbers, Random(kTokens * kRow, 20));
        const int32_t src_token = from_block - kTokens;
        const int32_t dst_token = to_block - kTokens - 1;
        const auto slots = [](int64_t first) {
          std::vector<int64_t> all;
          for (int64_t i = 0; i < kTokens; ++i) all.push_back(first + i);
          return all;
        };
        KvPoolView source = View(nullptr, from, from_block, 1);
        source.num_layers = 1;
        std::vector<std::byte> extent(static_cast<size_t>(source.ExtentBytes()), std::byte{0xff});
        source.data = extent.data();
        Expect(source, k, v, slots(src_token), 0);
        const DeviceArray src = ToDevice(extent);

        std::vector<std::byte> expected(PoolBytes(View(nullptr, dtype, to_block)), std::byte{0x3a});
        const DeviceArray memory = ToDevice(expected);
        Expect(View(expected.data(), dtype, to_block), k, v, slots(to_block + dst_token), 1);
        const KvRun run = {.src = {static_cast<const std::byte*>(src.data()), extent.size()},
                           .src_token = src_token,
                           .dst = {1, 1},
                           .dst_token = dst_token,
                           .num_tokens = kTokens};
        ASSERT_EQ(ops().ConvertKv(stream(), {.pool = View(memory.data(), dtype, to_block),
                                             .src_dtype = from,
                                             .src_block_tokens = from_block,
                                             .runs = {&run, 1}}),
                  absl::OkStatus());
        ASSERT_EQ(stream().Synchronize(), absl::OkStatus());
        EXPECT_EQ(memory.Download<std::byte>(), expected);
      }
    }
  }
}

// The other way round there is nothing that would tell numbers from what rounding left of them.
TEST_P(QuantisedKvTest, ConvertKvTakesNoQuantisedKvAsNumbers) {
  const DeviceArray memory =
      ToDevice(std::vector<std::byte>(PoolBytes(View(nullptr, DType::kF32))));
  for (const auto& [from, to] : {std::pair(DType::kK8V8, DType::kF32),
                                 {DType::kK8V8, DType::kK6V5},
                                 {DType::kF8E4M3, DType::kK8V8}}) {
    const absl::Status status = ops().ConvertKv(
        stream(),
        {.pool = View(memory.data(), to), .src_dtype = from, .src_block_tokens = 8, .runs = {}});
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument) << Name(from);
  }
}

// Other backends serve no pools of these types (ops_validate_test).
TANDEM_INSTANTIATE_OPS_TEST_ON(QuantisedKvTest, CpuOpsSetups());

}  // namespace
}  // namespace tandem::ops_quantised_kv_test
