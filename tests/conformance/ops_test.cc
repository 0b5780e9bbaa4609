#include <algorithm>
#include <bit>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/op_cost.h"
#include "tests/support/ops_fixture.h"
#include "tests/support/reference_ops.h"

// Each op against its float64 reference, with guards beside its output, over odd sizes; and each
// row alone against the same row among others (P2).

namespace tandem {
namespace {

constexpr double kBound = 2e-6;  // relative L2 of f32 arithmetic

class SmallOpsTest : public OpsTest {
 protected:
  std::vector<std::byte> RandomMatrix(DType dtype, int64_t elements) {
    std::vector<std::byte> matrix(static_cast<size_t>(elements * SizeOf(dtype)));
    const std::vector<float> values = Random(elements);
    for (int64_t i = 0; i < elements; ++i) {
      reference::Store(dtype, values[static_cast<size_t>(i)], matrix.data(), i);
    }
    return matrix;
  }

  std::vector<float> RmsNorm(const std::vector<float>& x, const std::vector<float>& weight) {
    const auto n = static_cast<int64_t>(weight.size());
    const int64_t rows = static_cast<int64_t>(x.size()) / n;
    const DeviceArray device_x = ToDevice(x);
    const DeviceArray device_weight = ToDevice(weight);
    const DeviceArray out = NewOutput(rows * n);
    EXPECT_TRUE(ops()
                    .RmsNorm(stream(), {.x = Tensor(device_x, {rows, n}),
                                        .weight = Tensor(device_weight, {n}),
                                        .out = Tensor(out, {rows, n})})
                    .ok());
    return out.Download<float>();
  }
};

TEST_P(SmallOpsTest, EmbeddingTakesRowsOutOfThePackedTable) {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (int64_t k : {1, 7, 64, 100}) {
      SCOPED_TRACE(std::string(Name(dtype)) + " " + std::to_string(k));
      const int64_t n = 77;
      std::vector<std::byte> table = RandomMatrix(dtype, n * k);
      const DeviceArray source = ToDevice(table);
      const DeviceArray packed =
          ToDevice(std::vector<std::byte>(static_cast<size_t>(ops().PackedBytes(dtype, n, k))));
      const PackedMatrix matrix = {static_cast<std::byte*>(packed.data()), dtype, n, k};
      const TensorView rows[] = {TensorView(source.data(), dtype, {n, k})};
      ASSERT_TRUE(ops().PackWeight(stream(), matrix, rows).ok());
      const std::vector<int32_t> ids = {76, 0, 31, 32, 33, 0};
      const DeviceArray out = NewOutput(6 * k);
      const EmbeddingArgs args = {ids, matrix, Tensor(out, {6, k})};
      ASSERT_TRUE(ops().Embedding(stream(), args).ok());
      const TensorView host(table.data(), dtype, {n, k});
      EXPECT_EQ(RelativeError(out.Download<float>(), reference::Embedding(args, host)), 0);
    }
  }
}

TEST_P(SmallOpsTest, GemmEqualsReference) {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    for (int64_t k : {1, 33, 256}) {
      for (int64_t rows : {1, 5, 40}) {
        SCOPED_TRACE(std::string(Name(dtype)) + " " + std::to_string(k));
        const int64_t n = 70;
        const std::vector<std::byte> weight = RandomMatrix(dtype, n * k);
        const std::vector<float> x = Random(rows * k);
        const std::vector<float> bias = Random(n);
        const DeviceArray source = ToDevice(weight), dx = ToDevice(x), dbias = ToDevice(bias);
        const DeviceArray packed =
            ToDevice(std::vector<std::byte>(static_cast<size_t>(ops().PackedBytes(dtype, n, k))));
        const DeviceArray out = NewOutput(rows * n);
        const PackedMatrix matrix = {static_cast<std::byte*>(packed.data()), dtype, n, k};
        const TensorView sources[] = {TensorView(source.data(), dtype, {n, k})};
        ASSERT_TRUE(ops().PackWeight(stream(), matrix, sources).ok());
        const GemmArgs args = {.x = Tensor(dx, {rows, k}),
                               .weight = matrix,
                               .bias = Tensor(dbias, {n}),
                               .out = Tensor(out, {rows, n})};
        ASSERT_TRUE(ops().Gemm(stream(), args).ok());
        const GemmArgs host = {
            .x = Tensor(x, {rows, k}), .weight = matrix, .bias = Tensor(bias, {n})};
        const TensorView rows_of_weight(const_cast<std::byte*>(weight.data()), dtype, {n, k});
        EXPECT_LT(RelativeError(out.Download<float>(), reference::Gemm(host, rows_of_weight)),
                  kBound);
      }
    }
  }
}

TEST_P(SmallOpsTest, RmsNormEqualsReference) {
  for (int64_t n : {1, 5, 16, 33, 1024, 5000}) {
    SCOPED_TRACE(n);
    const std::vector<float> x = Random(7 * n, 3.0f);
    const std::vector<float> weight = Random(n);
    const std::vector<float> out = RmsNorm(x, weight);
    const RmsNormArgs args = {.x = Tensor(x, {7, n}), .weight = Tensor(weight, {n})};
    EXPECT_LT(RelativeError(out, reference::RmsNorm(args)), kBound);
    const std::vector<float> row(x.begin() + 3 * n, x.begin() + 4 * n);
    EXPECT_TRUE(BitwiseEqual(RmsNorm(row, weight), std::span(out).subspan(3 * n, n)));
  }
}

TEST_P(SmallOpsTest, RmsNormInPlaceAndOverStridedRows) {
  const std::vector<float> x = Random(5 * 48);
  const std::vector<float> weight = Random(32);
  const DeviceArray device_x = ToDevice(x);
  const DeviceArray device_weight = ToDevice(weight);
  const TensorView view = Tensor(device_x, {5, 32}).WithRowStride(48);
  ASSERT_TRUE(
      ops()
          .RmsNorm(stream(), {.x = view, .weight = Tensor(device_weight, {32}), .out = view})
          .ok());
  const std::vector<double> expected = reference::RmsNorm(
      {.x = Tensor(x, {5, 32}).WithRowStride(48), .weight = Tensor(weight, {32})});
  const std::vector<float> out = device_x.Download<float>();
  for (size_t i = 0; i < out.size(); ++i) {
    if (i % 48 < 32) {
      EXPECT_NEAR(out[i], expected[i / 48 * 32 + i % 48], 1e-5);
    } else {
      EXPECT_EQ(out[i], x[i]) << "between the rows, " << i;
    }
  }
}

TEST_P(SmallOpsTest, RopeEqualsReferenceWithAndWithoutHeadNorm) {
  constexpr int64_t kTokens = 9;
  for (int64_t dim : {2, 24, 64, 80, 128}) {
    for (bool norm : {false, true}) {
      SCOPED_TRACE(dim);
      const std::vector<float> q = Random(kTokens * 3 * dim);
      const std::vector<float> k = Random(kTokens * 2 * dim);
      std::vector<float> cos = Random(kTokens * dim / 2);
      std::vector<float> sin = cos;
      for (float& value : cos) value = std::cos(value);
      for (float& value : sin) value = std::sin(value);
      const std::vector<float> q_norm = Random(dim);
      const std::vector<float> k_norm = Random(dim);
      const DeviceArray dq = ToDevice(q), dk = ToDevice(k), dcos = ToDevice(cos),
                        dsin = ToDevice(sin), dq_norm = ToDevice(q_norm),
                        dk_norm = ToDevice(k_norm);
      RopeArgs args = {.q = Tensor(dq, {kTokens, 3, dim}),
                       .k = Tensor(dk, {kTokens, 2, dim}),
                       .cos = Tensor(dcos, {kTokens, dim / 2}),
                       .sin = Tensor(dsin, {kTokens, dim / 2})};
      if (norm) args.q_norm = Tensor(dq_norm, {dim});
      if (norm) args.k_norm = Tensor(dk_norm, {dim});
      ASSERT_TRUE(ops().Rope(stream(), args).ok());
      const RopeArgs host = {.cos = Tensor(cos, {kTokens, dim / 2}),
                             .sin = Tensor(sin, {kTokens, dim / 2})};
      const TensorView q_weight = norm ? Tensor(q_norm, {dim}) : TensorView();
      const TensorView k_weight = norm ? Tensor(k_norm, {dim}) : TensorView();
      EXPECT_LT(RelativeError(dq.Download<float>(),
                              reference::Rope(host, Tensor(q, {kTokens, 3, dim}), q_weight)),
                kBound);
      EXPECT_LT(RelativeError(dk.Download<float>(),
                              reference::Rope(host, Tensor(k, {kTokens, 2, dim}), k_weight)),
                kBound);
    }
  }
}

TEST_P(SmallOpsTest, SiluMulEqualsReferenceAlsoFarOut) {
  for (int64_t n : {1, 16, 37, 2816}) {
    SCOPED_TRACE(n);
    std::vector<float> gate_up = Random(3 * 2 * n, 4.0f);
    gate_up[0] = -200;
    gate_up[static_cast<size_t>(2 * n)] = 200;
    gate_up[static_cast<size_t>(4 * n)] = -30;
    const DeviceArray in = ToDevice(gate_up);
    const DeviceArray out = NewOutput(3 * n);
    const SiluMulArgs args = {Tensor(in, {3, 2 * n}), Tensor(out, {3, n})};
    ASSERT_TRUE(ops().SiluMul(stream(), args).ok());
    const SiluMulArgs host = {Tensor(gate_up, {3, 2 * n}), Tensor(out, {3, n})};
    EXPECT_LT(RelativeError(out.Download<float>(), reference::SiluMul(host)), kBound);
  }
}

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
};

TEST_P(KvBlocksTest, StoreKvRoundsToNearestEvenIntoItsSlots) {
  for (DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    SCOPED_TRACE(Name(dtype));
    const std::vector<std::byte> before(static_cast<size_t>(kElements * SizeOf(dtype)),
                                        std::byte{0x5c});
    const DeviceArray memory = ToDevice(before);
    const KvPoolView pool = Pool(memory, dtype);
    const std::vector<int64_t> slots = {39, -1, 0, 17};
    std::vector<float> k = Random(4 * 48);
    std::vector<float> v = Random(4 * 48, 1e-6f);  // subnormal halves
    const float edges[] = {0.0f,
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
                           std::numeric_limits<float>::infinity()};
    std::copy(std::begin(edges), std::end(edges), k.begin());
    const DeviceArray dk = ToDevice(k), dv = ToDevice(v);
    ASSERT_TRUE(ops()
                    .StoreKv(stream(), {.k = Tensor(dk, {4, 2, 24}),
                                        .v = Tensor(dv, {4, 2, 24}),
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
        std::byte* extent = host.Extent(1, static_cast<int32_t>(slots[t] / 8));
        reference::Store(dtype, k[t * 48 + static_cast<size_t>(i)], extent, index);
        reference::Store(dtype, v[t * 48 + static_cast<size_t>(i)], extent, 2 * 8 * 24 + index);
      }
    }
    EXPECT_EQ(memory.Download<std::byte>(), expected);
  }
}

TEST_P(KvBlocksTest, StoredNaNStaysNaN) {
  for (DType dtype : {DType::kF16, DType::kBF16}) {
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

TEST_P(KvBlocksTest, CopyGatherAndScatterMoveWholeExtents) {
  std::vector<uint16_t> content(static_cast<size_t>(kElements));
  std::iota(content.begin(), content.end(), 0);
  const DeviceArray memory = ToDevice(content);
  const KvPoolView pool = Pool(memory, DType::kBF16);
  const auto extent = static_cast<size_t>(pool.ExtentBytes()) / sizeof(uint16_t);
  const auto at = [&](size_t layer, size_t block) { return (layer * 5 + block) * extent; };

  const std::pair<int32_t, int32_t> pairs[] = {{0, 3}, {2, 4}};
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

TEST_P(SmallOpsTest, CallsWithoutRowsDoNothing) {
  const std::vector<float> weight = Random(8);
  const TensorView none(nullptr, DType::kF32, {0, 8});
  EXPECT_TRUE(
      ops().RmsNorm(stream(), {.x = none, .weight = Tensor(weight, {8}), .out = none}).ok());
  EXPECT_TRUE(ops().SiluMul(stream(), {TensorView(nullptr, DType::kF32, {0, 16}), none}).ok());
}

// Hand-counted, so that a rate in a bench means what it says.
TEST(OpCostTest, CountsWhatMustMoveAndBeComputed) {
  const std::vector<int32_t> starts = {0, 2};
  const std::vector<int32_t> contexts = {5};
  std::vector<float> q(2 * 4 * 8);
  AttentionArgs args = {.q = Tensor(q, {2, 4, 8}),
                        .pool = {.dtype = DType::kBF16, .num_kv_heads = 2, .head_dim = 8},
                        .query_starts = starts,
                        .context_lens = contexts,
                        .out = Tensor(q, {2, 4, 8})};
  EXPECT_EQ(Cost(args).flops, (4 + 5) * 4 * 8 * 4);
  EXPECT_EQ(Cost(args).bytes, 2 * 64 * 4 + 5 * 2 * 2 * 8 * 2);
  args.window = 3;
  EXPECT_EQ(Cost(args).flops, (3 + 3) * 4 * 8 * 4);
  EXPECT_EQ(Cost(args).bytes, 2 * 64 * 4 + 4 * 2 * 2 * 8 * 2);

  std::byte weight{};
  const GemmArgs gemm = {.x = Tensor(q, {4, 16}),
                         .weight = {&weight, DType::kBF16, 10, 16},
                         .out = Tensor(q, {4, 10})};
  EXPECT_EQ(Cost(gemm).flops, 2 * 4 * 16 * 10);
  EXPECT_EQ(Cost(gemm).bytes, 4 * 16 * 4 + 10 * 16 * 2 + 4 * 10 * 4);
}

TANDEM_INSTANTIATE_OPS_TEST(SmallOpsTest);
TANDEM_INSTANTIATE_OPS_TEST(KvBlocksTest);

}  // namespace
}  // namespace tandem
