#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>

#include "kernels/op_cost.h"
#include "tests/support/ops_fixture.h"
#include "tests/support/reference_ops.h"

// Each op against its float64 reference, with guards beside its output, over odd sizes; and each
// row alone against the same row among others (P2).

namespace tandem::ops_test {
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

  std::vector<float> RmsNorm(const std::vector<float>& x, const std::vector<float>& weight,
                             DType act = DType::kF32) {
    const auto n = static_cast<int64_t>(weight.size());
    const int64_t rows = static_cast<int64_t>(x.size()) / n;
    const DeviceArray device_x = ToDevice(x);
    const DeviceArray device_weight = ToDevice(weight);
    const DeviceArray out = NewOutput(rows * n, act);
    EXPECT_TRUE(ops()
                    .RmsNorm(stream(), {.x = Tensor(device_x, {rows, n}),
                                        .weight = Tensor(device_weight, {n}),
                                        .out = Tensor(out, {rows, n}, act)})
                    .ok());
    return out.Floats(act);
  }

  struct GemmCase {
    DType dtype;
    int64_t rows;
    int64_t n;
    int64_t k;
    DType act = DType::kF32;
    DType out = DType::kF32;
    GemmOutput output = GemmOutput::kOverwrite;
  };

  void ExpectGemm(const GemmCase& c) {
    const std::vector<std::byte> weight = RandomMatrix(c.dtype, c.n * c.k);
    const std::vector<float> x = Rounded(c.act, Random(c.rows * c.k));
    const std::vector<float> bias = Random(c.n);
    const std::vector<float> before = Random(c.rows * c.n);
    const DeviceArray source = ToDevice(weight), dx = ToDeviceAs(c.act, x), dbias = ToDevice(bias);
    const DeviceArray packed =
        ToDevice(std::vector<std::byte>(static_cast<size_t>(ops().PackedBytes(c.dtype, c.n, c.k))));
    const bool adds = c.output == GemmOutput::kAccumulate;
    const DeviceArray out = adds ? ToDevice(before) : NewOutput(c.rows * c.n, c.out);
    const PackedMatrix matrix = {static_cast<std::byte*>(packed.data()), c.dtype, c.n, c.k};
    const TensorView sources[] = {TensorView(source.data(), c.dtype, {c.n, c.k})};
    ASSERT_TRUE(ops().PackWeight(stream(), matrix, sources).ok());
    const absl::Status status = ops().Gemm(stream(), {.x = Tensor(dx, {c.rows, c.k}, c.act),
                                                      .weight = matrix,
                                                      .bias = Tensor(dbias, {c.n}),
                                                      .out = Tensor(out, {c.rows, c.n}, c.out),
                                                      .output = c.output});
    ASSERT_TRUE(status.ok()) << status;
    const GemmArgs host = {.x = Tensor(x, {c.rows, c.k}),
                           .weight = matrix,
                           .bias = Tensor(bias, {c.n}),
                           .out = Tensor(before, {c.rows, c.n}),
                           .output = c.output};
    const TensorView rows_of_weight(const_cast<std::byte*>(weight.data()), c.dtype, {c.n, c.k});
    const double bound =
        std::max(Bound(kBound, c.act == DType::kF32 ? ProductType(c.dtype) : DType::kF32),
                 Bound(kBound, c.out));
    EXPECT_LT(RelativeError(out.Floats(c.out), reference::Gemm(host, rows_of_weight)), bound);
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
        ExpectGemm({.dtype = dtype, .rows = rows, .n = 70, .k = k});
      }
    }
  }
}

// Few rows over weights in whole vectors, and many: what the fast paths take.
TEST_P(SmallOpsTest, GemmTakesEveryActivation) {
  for (DType act : ActivationTypes()) {
    for (DType dtype : {DType::kF16, DType::kBF16}) {
      if (act != DType::kF32 && act != dtype) continue;
      for (int64_t rows : {1, 2, 3, 4, 7, 8, 16, 17, 33}) {
        SCOPED_TRACE(std::string(Name(act)) + " rows " + std::to_string(rows));
        const GemmCase c = {.dtype = dtype, .rows = rows, .n = 96, .k = 512, .act = act};
        ExpectGemm(c);
        GemmCase rounded = c;
        rounded.out = act;
        ExpectGemm(rounded);
        GemmCase adding = c;
        adding.output = GemmOutput::kAccumulate;
        ExpectGemm(adding);
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
    for (DType act : ActivationTypes()) {
      EXPECT_LT(RelativeError(RmsNorm(x, weight, act), reference::RmsNorm(args)),
                Bound(kBound, act));
    }
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
  constexpr int64_t kPositions = 31;
  const std::vector<int32_t> positions = {30, 0, 7, 7, 1, 29, 4, 16, 5};
  for (DType act : ActivationTypes()) {
    for (int64_t dim : {2, 24, 64, 80, 128}) {
      for (bool norm : {false, true}) {
        SCOPED_TRACE(std::string(Name(act)) + " " + std::to_string(dim));
        const std::vector<float> q = Rounded(act, Random(kTokens * 3 * dim));
        const std::vector<float> k = Rounded(act, Random(kTokens * 2 * dim));
        std::vector<float> cos = Random(kPositions * dim / 2);
        std::vector<float> sin = cos;
        for (float& value : cos) value = std::cos(value);
        for (float& value : sin) value = std::sin(value);
        const std::vector<float> q_norm = Random(dim);
        const std::vector<float> k_norm = Random(dim);
        const DeviceArray dq = ToDeviceAs(act, q), dk = ToDeviceAs(act, k), dcos = ToDevice(cos),
                          dsin = ToDevice(sin), dq_norm = ToDevice(q_norm),
                          dk_norm = ToDevice(k_norm);
        RopeArgs args = {.q = Tensor(dq, {kTokens, 3, dim}, act),
                         .k = Tensor(dk, {kTokens, 2, dim}, act),
                         .positions = positions,
                         .cos = Tensor(dcos, {kPositions, dim / 2}),
                         .sin = Tensor(dsin, {kPositions, dim / 2})};
        if (norm) args.q_norm = Tensor(dq_norm, {dim});
        if (norm) args.k_norm = Tensor(dk_norm, {dim});
        ASSERT_TRUE(ops().Rope(stream(), args).ok());
        const RopeArgs host = {.positions = positions,
                               .cos = Tensor(cos, {kPositions, dim / 2}),
                               .sin = Tensor(sin, {kPositions, dim / 2})};
        const TensorView q_weight = norm ? Tensor(q_norm, {dim}) : TensorView();
        const TensorView k_weight = norm ? Tensor(k_norm, {dim}) : TensorView();
        EXPECT_LT(RelativeError(dq.Floats(act),
                                reference::Rope(host, Tensor(q, {kTokens, 3, dim}), q_weight)),
                  Bound(kBound, act));
        EXPECT_LT(RelativeError(dk.Floats(act),
                                reference::Rope(host, Tensor(k, {kTokens, 2, dim}), k_weight)),
                  Bound(kBound, act));
      }
    }
  }
}

TEST_P(SmallOpsTest, SiluMulEqualsReferenceAlsoFarOut) {
  for (DType act : ActivationTypes()) {
    for (int64_t n : {1, 16, 37, 2816}) {
      SCOPED_TRACE(n);
      std::vector<float> gate_up = Rounded(act, Random(3 * 2 * n, 4.0f));
      gate_up[0] = -200;
      gate_up[static_cast<size_t>(2 * n)] = 200;
      gate_up[static_cast<size_t>(4 * n)] = -30;
      const DeviceArray in = ToDeviceAs(act, gate_up);
      const DeviceArray out = NewOutput(3 * n, act);
      const SiluMulArgs args = {Tensor(in, {3, 2 * n}, act), Tensor(out, {3, n}, act)};
      ASSERT_TRUE(ops().SiluMul(stream(), args).ok());
      const SiluMulArgs host = {Tensor(gate_up, {3, 2 * n}), Tensor(out, {3, n})};
      EXPECT_LT(RelativeError(out.Floats(act), reference::SiluMul(host)), Bound(kBound, act));
    }
  }
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

  args.lse = Tensor(q, {2, 4});
  EXPECT_EQ(Cost(args).bytes, 2 * 64 * 4 + 4 * 2 * 2 * 8 * 2 + 2 * 4 * 4);

  // The last row alone, over K alone.
  const ColumnMassArgs mass = {.attention = args, .last_rows = 1, .out = Tensor(q, {1, 2, 5})};
  EXPECT_EQ(Cost(mass).flops, 3 * 2 * 8 * 4);
  EXPECT_EQ(Cost(mass).bytes, (32 + 4) * 4 + 3 * 2 * 8 * 2 + 10 * 4);

  // A row of the tables per token, however long they are; K is written once and not read again.
  const std::vector<int32_t> positions = {0, 1};
  const std::vector<int64_t> slots = {0, -1};
  const RopeArgs rope = {.q = Tensor(q, {2, 2, 8}),
                         .k = Tensor(q, {2, 1, 8}),
                         .positions = positions,
                         .cos = Tensor(q, {8, 4}),
                         .sin = Tensor(q, {8, 4})};
  EXPECT_EQ(Cost(rope).bytes, 2 * 48 * 4 + 2 * 2 * 4 * 4);
  const StoreKvArgs store = {.k = rope.k,
                             .v = rope.k,
                             .slots = slots,
                             .pool = {.dtype = DType::kF8E4M3, .num_kv_heads = 1, .head_dim = 8}};
  EXPECT_EQ(Cost(store).bytes, 2 * 8 * 4 + 2 * 8);
  EXPECT_EQ(Cost(rope, store).bytes, Cost(rope).bytes + 8 * 4 + 2 * 8);

  // Two tokens in each of three layers with two KV heads, read and written.
  const std::vector<int32_t> from(12), to(2);
  const CopyTokensArgs copy = {
      .pool = {.dtype = DType::kBF16, .num_layers = 3, .num_kv_heads = 2, .head_dim = 8},
      .from = from,
      .to = to};
  EXPECT_EQ(Cost(copy).bytes, 2 * 6 * 2 * 2 * 8 * 2);

  std::byte weight{};
  const GemmArgs gemm = {.x = Tensor(q, {4, 16}),
                         .weight = {&weight, DType::kBF16, 10, 16},
                         .out = Tensor(q, {4, 10})};
  EXPECT_EQ(Cost(gemm).flops, 2 * 4 * 16 * 10);
  EXPECT_EQ(Cost(gemm).bytes, 4 * 16 * 4 + 10 * 16 * 2 + 4 * 10 * 4);
}

TANDEM_INSTANTIATE_OPS_TEST(SmallOpsTest);

}  // namespace
}  // namespace tandem::ops_test
