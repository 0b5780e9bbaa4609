#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "tests/support/ops_fixture.h"
#include "tests/support/reference_ops.h"

// What is written into the block pool, and blocks that are moved in it, bit for bit.

namespace tandem::ops_kv_test {
namespace {

class KvBlocksTest : public OpsTest {
 protected:
  KvPoolView Pool(const DeviceArray& memory, DType dtype) {
    return {.data = static_cast<std::byte*>(memory.data()),
            .dtype = dtype,
            .num_layers = 3,
            .num_blocks = 5,
            .num_kv_heads = 2,
            .block_tokens = 8,
            .head_dim = 24};
  }
  static constexpr int64_t kElements = int64_t{3} * 5 * 2 * 2 * 8 * 24;

  // Zeros, ties, what lies at the ends of the ranges of small floats and beyond, as `act` has it.
  static std::vector<float> Edges(DType act) {
    const std::vector<float> edges = {0.0f,
                                      -0.0f,
                                      65504.0f,
                                      65519.9f,
                                      65520.0f,
                                      -1e30f,
                                      1.00390625f,
                                      1.01171875f,
                                      0x1p-25f,
                                      0x1.8p-25f,
                                      0x1.002p0f,
                                      0x1.006p0f,
                                      std::numeric_limits<float>::infinity(),
                                      448.0f,
                                      463.9f,
                                      -464.0f,
                                      1.0625f,
                                      1.1875f,
                                      0x1p-10f,
                                      0x1.8p-9f,
                                      0x1.ep-7f};
    return Rounded(act, edges);
  }

  struct Stored {
    DType act = DType::kF32;
    DType dtype = DType::kBF16;
    std::vector<float> k;  // [T, 2, 24]
    std::vector<float> v;
    float k_scale = 1;
    float v_scale = 1;
  };

  // The pool after StoreKv is the one before but for the slots.
  void ExpectStored(const Stored& s, const std::vector<int64_t>& slots) {
    const std::vector<std::byte> before(static_cast<size_t>(kElements * SizeOf(s.dtype)),
                                        std::byte{0x5c});
    const DeviceArray memory = ToDevice(before);
    KvPoolView pool = Pool(memory, s.dtype);
    pool.k_scale = s.k_scale;
    pool.v_scale = s.v_scale;
    const DeviceArray dk = ToDeviceAs(s.act, s.k), dv = ToDeviceAs(s.act, s.v);
    const auto tokens = static_cast<int64_t>(slots.size());
    ASSERT_TRUE(ops()
                    .StoreKv(stream(), {.k = Tensor(dk, {tokens, 2, 24}, s.act),
                                        .v = Tensor(dv, {tokens, 2, 24}, s.act),
                                        .slots = slots,
                                        .pool = pool,
                                        .layer = 1})
                    .ok());
    std::vector<std::byte> expected = before;
    KvPoolView host = pool;
    host.data = expected.data();
    for (size_t t = 0; t < slots.size(); ++t) {
      if (slots[t] < 0) continue;
      for (int64_t i = 0; i < 48; ++i) {
        const int64_t index = (i / 24 * 8 + slots[t] % 8) * 24 + i % 24;
        const size_t at = t * 48 + static_cast<size_t>(i);
        std::byte* extent = host.Extent(1, static_cast<int32_t>(slots[t] / 8));
        reference::Store(s.dtype, s.k[at] / s.k_scale, extent, index);
        reference::Store(s.dtype, s.v[at] / s.v_scale, extent, 2 * 8 * 24 + index);
      }
    }
    EXPECT_EQ(memory.Download<std::byte>(), expected);
  }
};

TEST_P(KvBlocksTest, StoreKvRoundsToNearestEvenIntoItsSlots) {
  for (DType act : ActivationTypes()) {
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3}) {
      SCOPED_TRACE(std::string(Name(act)) + " to " + std::string(Name(dtype)));
      const std::vector<int64_t> slots = {39, -1, 0, 17};
      std::vector<float> k = Rounded(act, Random(4 * 48));
      // Subnormal halves, and subnormal eights.
      std::vector<float> v = Rounded(act, Random(4 * 48, dtype == DType::kF8E4M3 ? 4e-3f : 1e-6f));
      const std::vector<float> edges = Edges(act);
      std::copy(edges.begin(), edges.end(), k.begin());
      ExpectStored({.act = act, .dtype = dtype, .k = k, .v = v}, slots);
    }
  }
}

TEST_P(KvBlocksTest, StoreKvDividesByTheScales) {
  for (const auto& [k_scale, v_scale] : {std::pair(0.25f, 8.0f), {0x1p-9f, 0x1p7f}}) {
    ExpectStored({.dtype = DType::kF8E4M3,
                  .k = Random(2 * 48),
                  .v = Random(2 * 48, 100.0f),
                  .k_scale = k_scale,
                  .v_scale = v_scale},
                 {5, 38});
  }
}

TEST_P(KvBlocksTest, StoredNaNStaysNaN) {
  for (DType dtype : {DType::kF16, DType::kBF16, DType::kF8E4M3}) {
    const DeviceArray memory =
        ToDevice(std::vector<std::byte>(static_cast<size_t>(kElements * SizeOf(dtype))));
    std::vector<float> kv(48);
    std::fill(kv.begin(), kv.end(), std::bit_cast<float>(0x7f800001u));  // the smallest payload
    const DeviceArray values = ToDevice(kv);
    const std::vector<int64_t> slots = {0};
    ASSERT_TRUE(ops()
                    .StoreKv(stream(), {.k = Tensor(values, {1, 2, 24}),
                                        .v = Tensor(values, {1, 2, 24}),
                                        .slots = slots,
                                        .pool = Pool(memory, dtype)})
                    .ok());
    EXPECT_TRUE(std::isnan(reference::Load(dtype, memory.Download<std::byte>().data(), 0)));
  }
}

// The fused pass writes the bits of the two ops behind one another, into q, k and the pool.
TEST_P(KvBlocksTest, RopeStoreKvEqualsRopeThenStoreKv) {
  const std::vector<int32_t> positions = {5, 0, 7, 3};
  const std::vector<int64_t> slots = {39, -1, 0, 17};
  for (DType act : ActivationTypes()) {
    for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16, DType::kF8E4M3}) {
      for (bool norm : {false, true}) {
        SCOPED_TRACE(std::string(Name(act)) + " to " + std::string(Name(dtype)));
        // q, k and v are slices of one projection: [4, (3 + 2 + 2) * 24].
        const std::vector<float> fused = Random(4 * 7 * 24);
        const std::vector<float> cos = Random(8 * 12), sin = Random(8 * 12), weight = Random(24);
        const DeviceArray dcos = ToDevice(cos), dsin = ToDevice(sin), dweight = ToDevice(weight);
        std::vector<std::vector<std::byte>> results;
        for (bool one_pass : {false, true}) {
          const DeviceArray projection = ToDeviceAs(act, fused);
          const DeviceArray memory =
              ToDevice(std::vector<std::byte>(static_cast<size_t>(kElements * SizeOf(dtype))));
          const auto slice = [&](int64_t first_head, int64_t heads) {
            auto* data = static_cast<std::byte*>(projection.data()) + first_head * 24 * SizeOf(act);
            return TensorView(data, act, {4, heads, 24}).WithRowStride(7 * 24);
          };
          RopeArgs rope = {.q = slice(0, 3),
                           .k = slice(3, 2),
                           .positions = positions,
                           .cos = Tensor(dcos, {8, 12}),
                           .sin = Tensor(dsin, {8, 12})};
          if (norm) rope.q_norm = rope.k_norm = Tensor(dweight, {24});
          const StoreKvArgs store = {.k = rope.k,
                                     .v = slice(5, 2),
                                     .slots = slots,
                                     .pool = Pool(memory, dtype),
                                     .layer = 2};
          if (one_pass) {
            ASSERT_TRUE(ops().RopeStoreKv(stream(), rope, store).ok());
          } else {
            ASSERT_TRUE(ops().Rope(stream(), rope).ok());
            ASSERT_TRUE(ops().StoreKv(stream(), store).ok());
          }
          results.push_back(projection.Download<std::byte>());
          results.push_back(memory.Download<std::byte>());
        }
        EXPECT_EQ(results[0], results[2]) << "q, k and v";
        EXPECT_EQ(results[1], results[3]) << "the pool";
      }
    }
  }
}

TEST_P(KvBlocksTest, CopyGatherAndScatterMoveWholeExtents) {
  std::vector<uint16_t> content(static_cast<size_t>(kElements));
  std::iota(content.begin(), content.end(), 0);
  const DeviceArray memory = ToDevice(content);
  const KvPoolView pool = Pool(memory, DType::kBF16);
  const auto extent = static_cast<size_t>(pool.ExtentBytes()) / sizeof(uint16_t);
  const auto at = [&](size_t layer, size_t block) { return (layer * 5 + block) * extent; };

  const BlockPair pairs[] = {{0, 3}, {2, 4}};
  ASSERT_TRUE(ops().CopyBlocks(stream(), {pool, pairs}).ok());
  std::vector<uint16_t> expected = content;
  for (size_t layer = 0; layer < 3; ++layer) {
    for (const auto& [from, to] : pairs) {
      std::copy_n(content.begin() + at(layer, from), extent, expected.begin() + at(layer, to));
    }
  }
  EXPECT_EQ(memory.Download<uint16_t>(), expected);

  const LayerBlock items[] = {{2, 1}, {0, 3}, {1, 4}};
  const DeviceArray staging = ToDevice(std::vector<uint16_t>(3 * extent));
  const std::span<std::byte> bytes(static_cast<std::byte*>(staging.data()), staging.size_bytes());
  ASSERT_TRUE(ops().GatherBlocks(stream(), {pool, items, bytes}).ok());
  std::vector<uint16_t> moved = staging.Download<uint16_t>();
  for (size_t i = 0; i < 3; ++i) {
    const size_t from =
        at(static_cast<size_t>(items[i].layer), static_cast<size_t>(items[i].block));
    EXPECT_TRUE(std::equal(moved.begin() + i * extent, moved.begin() + (i + 1) * extent,
                           expected.begin() + from));
    for (size_t j = 0; j < extent; ++j) {
      expected[from + j] = moved[i * extent + j] =
          static_cast<uint16_t>(moved[i * extent + j] ^ 0x1234);
    }
  }
  ASSERT_TRUE(stream().Copy(bytes, std::as_bytes(std::span<const uint16_t>(moved))).ok());
  ASSERT_TRUE(ops().ScatterBlocks(stream(), {pool, items, bytes}).ok());
  EXPECT_EQ(memory.Download<uint16_t>(), expected);
}

TANDEM_INSTANTIATE_OPS_TEST(KvBlocksTest);

}  // namespace
}  // namespace tandem::ops_kv_test
