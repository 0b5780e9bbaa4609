#include <algorithm>
#include <bit>
#include <cmath>
#include <iterator>
#include <limits>
#include <numeric>

#include "fmt/format.h"
#include "tests/support/ops_fixture.h"
#include "tests/support/reference_ops.h"

// What is written into the block pool and moved in it, bit for bit.

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
        const int32_t source = from[static_cast<size_t>(layer) * to.size() + i];
        for (int32_t plane = 0; plane < 2 * shape.kv_heads; ++plane) {
          for (int64_t j = 0; j < RowBytes(pool, plane); ++j) {
            expected[ByteOf(pool, layer, to[i], plane, j)] =
                before[ByteOf(pool, layer, source, plane, j)];
          }
        }
      }
    }
    EXPECT_TRUE(memory.Download<std::byte>() == expected);
  }

  // Tokens from anywhere to anywhere, in each layer others, some of them read twice.
  void ExpectScatteredCopied(const Shape& shape) {
    std::vector<int32_t> slots(static_cast<size_t>(shape.num_blocks * shape.block_tokens));
    std::iota(slots.begin(), slots.end(), 0);
    std::shuffle(slots.begin(), slots.end(), rng_);
    const std::vector<int32_t> to(slots.begin(), slots.begin() + std::ssize(slots) / 3);
    std::vector<int32_t> from;
    for (size_t i = 0; i < kLayers * to.size(); ++i) {
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
    for (const int32_t first_from : {0, 5, 13}) {  // one for each layer
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
  for (int32_t layer = 0; layer < kLayers; ++layer) {
    std::sample(all.begin(), all.end(), std::back_inserter(from), tokens / 4 * 3, rng_);
  }
  std::vector<int32_t> to(static_cast<size_t>(tokens / 4 * 3));
  std::iota(to.begin(), to.end(), tokens);
  const Shape shape = {
      .head_dim = 64, .block_tokens = 32, .num_blocks = 2 * tokens / 32, .kv_heads = 2};
  for (int num_threads : ThreadCounts()) {
    UseThreads(num_threads);
    ExpectCopied(shape, from, to);
  }
}

class ConvertKvTest : public OpsTest {
 protected:
  static constexpr int32_t kHeads = 2;
  static constexpr int32_t kPlanes = 2 * kHeads;
  static constexpr int32_t kHeadDim = 24;

  static KvPoolView View(std::byte* data, DType dtype, int32_t block_tokens, int32_t num_blocks) {
    return {.data = data,
            .dtype = dtype,
            .num_layers = 1,
            .num_blocks = num_blocks,
            .num_kv_heads = kHeads,
            .block_tokens = block_tokens,
            .head_dim = kHeadDim};
  }

  // Element `i` of a token, in elements from the data of `view`.
  static int64_t IndexOf(const KvPoolView& view, int32_t block, int32_t plane, int32_t token,
                         int32_t i) {
    return ((int64_t{block} * kPlanes + plane) * view.block_tokens + token) * kHeadDim + i;
  }

  // One extent after the other.
  static std::span<const std::byte> ExtentOf(const DeviceArray& memory, const KvPoolView& view,
                                             int32_t block) {
    const auto bytes = static_cast<size_t>(view.ExtentBytes());
    return {static_cast<const std::byte*>(memory.data()) + block * bytes, bytes};
  }

  void Convert(const ConvertKvArgs& args) {
    ASSERT_EQ(ops().ConvertKv(stream(), args), absl::OkStatus());
    ASSERT_EQ(stream().Synchronize(), absl::OkStatus());
  }
};

// All that there are, as many extents as they take.
TEST_P(ConvertKvTest, EveryValueStaysWhatItIs) {
  for (const auto& [from, to] : {std::pair(DType::kF8E4M3, DType::kBF16),
                                 {DType::kF8E4M3, DType::kF16},
                                 {DType::kF8E4M3, DType::kF32},
                                 {DType::kBF16, DType::kF32},
                                 {DType::kF16, DType::kF32}}) {
    SCOPED_TRACE(std::string(Name(from)) + " to " + std::string(Name(to)));
    const int64_t width = SizeOf(from);
    const int64_t extent = kPlanes * 8 * kHeadDim;
    const auto extents = static_cast<int32_t>(((int64_t{1} << (8 * width)) + extent - 1) / extent);
    std::vector<std::byte> values(static_cast<size_t>(extents * extent * width));
    for (int64_t i = 0; i < extents * extent; ++i) {
      std::memcpy(values.data() + i * width, &i, static_cast<size_t>(width));
    }
    const DeviceArray sources = ToDevice(values);
    const DeviceArray memory = NewOutput(extents * extent, to);
    const KvPoolView source = View(nullptr, from, 8, extents);
    std::vector<KvRun> runs;
    for (int32_t block = 0; block < extents; ++block) {
      runs.push_back({.src = ExtentOf(sources, source, block), .dst = {0, block}, .num_tokens = 8});
    }
    Convert({.pool = View(static_cast<std::byte*>(memory.data()), to, 8, extents),
             .src_dtype = from,
             .src_block_tokens = 8,
             .runs = runs});
    const std::vector<std::byte> converted = memory.Download<std::byte>();
    for (int64_t i = 0; i < extents * extent; ++i) {
      const double before = reference::Load(from, values.data(), i);
      const double after = reference::Load(to, converted.data(), i);
      if (std::isnan(before)) {
        ASSERT_TRUE(std::isnan(after)) << i;
      } else {
        ASSERT_EQ(before, after) << i;
        ASSERT_EQ(std::signbit(before), std::signbit(after)) << i;
      }
    }
  }
}

struct Sizes {
  int32_t from;  // tokens of a block
  int32_t to;
  int32_t num_runs;  // each in an extent and a block of its own; 200 are more than a launch takes
};

// Runs of any length and place: they come to their places, and nothing else changes.
TEST_P(ConvertKvTest, TokensFindTheirPlacesAndTheOthersStay) {
  const DType widths[][2] = {{DType::kF8E4M3, DType::kF8E4M3},
                             {DType::kF16, DType::kF16},
                             {DType::kF32, DType::kF32},
                             {DType::kF8E4M3, DType::kF32}};
  for (const auto& [from, to] : widths) {
    for (const Sizes& size :
         {Sizes{8, 8, 200}, {8, 16, 20}, {16, 8, 20}, {256, 8, 2}, {8, 256, 2}}) {
      SCOPED_TRACE(fmt::format("{} of {} to {} of {}", size.from, Name(from), size.to, Name(to)));
      const KvPoolView source = View(nullptr, from, size.from, size.num_runs);
      std::vector<float> values(
          static_cast<size_t>(size.num_runs * source.ExtentBytes() / SizeOf(from)));
      for (float& value : values) value = static_cast<float>(rng_() % 31) - 15;
      const DeviceArray sources = ToDeviceAs(from, values);
      std::vector<float> expected(static_cast<size_t>(size.num_runs) * kPlanes * size.to * kHeadDim,
                                  7.5f);
      const DeviceArray memory = ToDeviceAs(to, expected);
      const KvPoolView pool =
          View(static_cast<std::byte*>(memory.data()), to, size.to, size.num_runs);
      std::vector<KvRun> runs;
      for (int32_t i = 0; i < size.num_runs; ++i) {
        const int32_t tokens = 1 + i * 7 % std::min(size.from, size.to);
        const KvRun run = {.src = ExtentOf(sources, source, i),
                           .src_token = i * 5 % (size.from - tokens + 1),
                           .dst = {0, size.num_runs - 1 - i},
                           .dst_token = i * 3 % (size.to - tokens + 1),
                           .num_tokens = tokens};
        runs.push_back(run);
        for (int32_t at = 0; at < kPlanes * tokens * kHeadDim; ++at) {
          const int32_t plane = at / kHeadDim / tokens;
          const int32_t token = at / kHeadDim % tokens;
          const int64_t place =
              IndexOf(pool, run.dst.block, plane, run.dst_token + token, at % kHeadDim);
          expected[static_cast<size_t>(place)] = values[static_cast<size_t>(
              IndexOf(source, i, plane, run.src_token + token, at % kHeadDim))];
        }
      }
      Convert({.pool = pool, .src_dtype = from, .src_block_tokens = size.from, .runs = runs});
      EXPECT_EQ(memory.Floats(to), expected);
    }
  }
}

TANDEM_INSTANTIATE_OPS_TEST(KvBlocksTest);
TANDEM_INSTANTIATE_OPS_TEST(CopyTokensTest);
TANDEM_INSTANTIATE_OPS_TEST(ConvertKvTest);

}  // namespace
}  // namespace tandem::ops_kv_test
