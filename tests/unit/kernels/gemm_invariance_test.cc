#include <algorithm>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "tests/support/ops_fixture.h"
#include "tests/support/reference_ops.h"

// An output of a matrix product is one chain of fused multiply-adds over rising inputs, of
// activations that the backend cpu-bf16 rounds first where weights are of bf16. So it has the same
// bits whatever the rows beside it, the number of threads, the tile, the vector width and the
// processor.

namespace tandem::gemm_invariance_test {
namespace {

constexpr DType kDTypes[] = {DType::kBF16, DType::kF16, DType::kF32};

class GemmInvarianceTest : public OpsTest {
 protected:
  struct Weight {
    DType dtype;
    int64_t n;
    int64_t k;
    std::vector<std::byte> rows;  // [n, k] row-major, as in a checkpoint
  };

  Weight RandomWeight(DType dtype, int64_t n, int64_t k) {
    Weight weight{dtype, n, k, std::vector<std::byte>(static_cast<size_t>(n * k * SizeOf(dtype)))};
    const std::vector<float> values = Random(n * k);
    for (int64_t i = 0; i < n * k; ++i) {
      reference::Store(dtype, values[static_cast<size_t>(i)], weight.rows.data(), i);
    }
    return weight;
  }

  DeviceArray Pack(const Weight& weight, std::initializer_list<int64_t> split) {
    const DeviceArray rows = ToDevice(weight.rows);
    const int64_t bytes = ops().PackedBytes(weight.dtype, weight.n, weight.k);
    DeviceArray packed = ToDevice(std::vector<std::byte>(static_cast<size_t>(bytes)));
    std::vector<TensorView> sources;
    auto* at = static_cast<std::byte*>(rows.data());
    for (int64_t n : split) {
      sources.emplace_back(at, weight.dtype, std::initializer_list<int64_t>{n, weight.k});
      at += n * weight.k * SizeOf(weight.dtype);
    }
    EXPECT_TRUE(ops().PackWeight(stream(), Matrix(weight, packed), sources).ok());
    return packed;
  }

  static PackedMatrix Matrix(const Weight& weight, const DeviceArray& packed) {
    return {static_cast<std::byte*>(packed.data()), weight.dtype, weight.n, weight.k};
  }

  std::vector<float> Multiply(const std::vector<float>& x, const Weight& weight,
                              const DeviceArray& packed) {
    const int64_t num_rows = static_cast<int64_t>(x.size()) / weight.k;
    const DeviceArray device_x = ToDevice(x);
    const DeviceArray out = NewOutput(num_rows * weight.n);
    EXPECT_TRUE(ops()
                    .Gemm(stream(), {.x = Tensor(device_x, {num_rows, weight.k}),
                                     .weight = Matrix(weight, packed),
                                     .out = Tensor(out, {num_rows, weight.n})})
                    .ok());
    return out.Download<float>();
  }

  // The chain, one output after the other.
  static std::vector<float> Chains(std::vector<float> x, const Weight& weight) {
    const bool rounds = GetParam().backend == "cpu-bf16" && weight.dtype == DType::kBF16;
    if (rounds) x = Rounded(DType::kBF16, std::move(x));
    std::vector<float> out;
    for (size_t row = 0; row < x.size(); row += static_cast<size_t>(weight.k)) {
      for (int64_t n = 0; n < weight.n; ++n) {
        float sum = 0;
        for (int64_t i = 0; i < (rounds ? (weight.k + 1) / 2 * 2 : weight.k); ++i) {
          const int64_t k = rounds ? i ^ 1 : i;  // as VDPBF16PS adds: of each pair the second first
          if (k == weight.k) continue;
          const auto w = static_cast<float>(
              reference::Load(weight.dtype, weight.rows.data(), n * weight.k + k));
          sum = std::fma(x[row + static_cast<size_t>(k)], w, sum);
        }
        out.push_back(sum);
      }
    }
    return out;
  }
};

TEST_P(GemmInvarianceTest, EachOutputIsOneChainOfFusedMultiplyAdds) {
  for (DType dtype : kDTypes) {
    for (int64_t n : {1, 32, 97}) {
      for (int64_t k : {1, 2, 17, 128, 129, 301}) {
        const Weight weight = RandomWeight(dtype, n, k);
        const DeviceArray packed = Pack(weight, {n});
        for (int64_t num_rows : {1, 2, 5, 13, 26, 50}) {
          SCOPED_TRACE(fmt::format("{} n {} k {} rows {}", Name(dtype), n, k, num_rows));
          const std::vector<float> x = Random(num_rows * k);
          EXPECT_TRUE(BitwiseEqual(Multiply(x, weight, packed), Chains(x, weight)));
        }
      }
    }
  }
}

TEST_P(GemmInvarianceTest, ARowDependsNeitherOnOtherRowsNorOnThreads) {
  constexpr int64_t kRows = 300;  // more than one block of any order
  const Weight weight = RandomWeight(DType::kBF16, 161, 333);
  const std::vector<float> x = Random(kRows * weight.k);
  const DeviceArray packed = Pack(weight, {weight.n});
  const std::vector<float> all = Multiply(x, weight, packed);
  for (int num_threads : {1, 2, 3}) {
    UseThreads(num_threads);
    for (int64_t num_rows :
         {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 24, 25, 64, 300}) {
      SCOPED_TRACE(fmt::format("rows {} threads {}", num_rows, num_threads));
      const int64_t first = kRows - num_rows;
      const std::vector<float> some(x.begin() + first * weight.k, x.end());
      EXPECT_TRUE(BitwiseEqual(Multiply(some, weight, packed),
                               std::span(all).subspan(static_cast<size_t>(first * weight.n))));
    }
  }
}

TEST_P(GemmInvarianceTest, AddsTheBiasAndThenTheOldValue) {
  const Weight weight = RandomWeight(DType::kBF16, 45, 64);
  const DeviceArray packed = Pack(weight, {weight.n});
  for (int64_t num_rows : {1, 30}) {
    const std::vector<float> x = Random(num_rows * weight.k);
    const std::vector<float> bias = Random(weight.n);
    std::vector<float> expected = Random(num_rows * weight.n);
    const DeviceArray device_x = ToDevice(x);
    const DeviceArray device_bias = ToDevice(bias);
    const DeviceArray out = ToDevice(expected);
    ASSERT_TRUE(ops()
                    .Gemm(stream(), {.x = Tensor(device_x, {num_rows, weight.k}),
                                     .weight = Matrix(weight, packed),
                                     .bias = Tensor(device_bias, {weight.n}),
                                     .out = Tensor(out, {num_rows, weight.n}),
                                     .output = GemmOutput::kAccumulate})
                    .ok());
    const std::vector<float> sums = Chains(x, weight);
    for (size_t i = 0; i < sums.size(); ++i) {
      expected[i] += sums[i] + bias[i % static_cast<size_t>(weight.n)];
    }
    EXPECT_TRUE(BitwiseEqual(out.Download<float>(), expected)) << num_rows << " rows";
  }
}

TEST_P(GemmInvarianceTest, RowsMayLieApart) {
  const Weight weight = RandomWeight(DType::kBF16, 40, 51);
  const DeviceArray packed = Pack(weight, {weight.n});
  constexpr int64_t kRows = 21, kStrideX = 59, kStrideOut = 47;
  std::vector<float> wide_x = Random(kRows * kStrideX);
  for (int64_t i = 0; i < kRows * kStrideX; ++i) {  // what lies between rows shows when it is read
    if (i % kStrideX >= weight.k) wide_x[static_cast<size_t>(i)] = std::nanf("");
  }
  const std::vector<float> before = Random(kRows * kStrideOut);
  const DeviceArray device_x = ToDevice(wide_x);
  const DeviceArray out = ToDevice(before);
  const TensorView x_view = Tensor(device_x, {kRows, weight.k}).WithRowStride(kStrideX);
  const TensorView out_view = Tensor(out, {kRows, weight.n}).WithRowStride(kStrideOut);
  ASSERT_TRUE(
      ops().Gemm(stream(), {.x = x_view, .weight = Matrix(weight, packed), .out = out_view}).ok());
  const std::vector<float> after = out.Download<float>();
  for (int64_t row = 0; row < kRows; ++row) {
    const std::vector<float> x(wide_x.begin() + row * kStrideX,
                               wide_x.begin() + row * kStrideX + weight.k);
    std::vector<float> expected = Chains(x, weight);
    expected.insert(expected.end(), before.begin() + row * kStrideOut + weight.n,
                    before.begin() + (row + 1) * kStrideOut);
    EXPECT_TRUE(BitwiseEqual(std::span(after).subspan(row * kStrideOut, kStrideOut), expected))
        << "row " << row;
  }
}

TEST_P(GemmInvarianceTest, StackedSourcesPackAsOneMatrix) {
  for (DType dtype : kDTypes) {
    for (int64_t k : {1, 37, 64}) {
      SCOPED_TRACE(fmt::format("{} k {}", Name(dtype), k));
      const Weight weight = RandomWeight(dtype, 100, k);
      EXPECT_EQ(Pack(weight, {1, 31, 40, 28}).Download<uint8_t>(),
                Pack(weight, {100}).Download<uint8_t>());
    }
  }
}

// A tensor of a mapped checkpoint begins wherever its file says.
TEST_P(GemmInvarianceTest, SourcesMayBeUnaligned) {
  for (DType dtype : kDTypes) {
    SCOPED_TRACE(Name(dtype));
    const Weight weight = RandomWeight(dtype, 33, 67);
    std::vector<std::byte> shifted(1);
    shifted.insert(shifted.end(), weight.rows.begin(), weight.rows.end());
    const DeviceArray rows = ToDevice(shifted);
    const int64_t bytes = ops().PackedBytes(dtype, weight.n, weight.k);
    const DeviceArray packed = ToDevice(std::vector<std::byte>(static_cast<size_t>(bytes)));
    const TensorView sources[] = {
        TensorView(static_cast<std::byte*>(rows.data()) + 1, dtype, {weight.n, weight.k})};
    ASSERT_TRUE(ops().PackWeight(stream(), Matrix(weight, packed), sources).ok());
    EXPECT_EQ(packed.Download<uint8_t>(), Pack(weight, {weight.n}).Download<uint8_t>());
  }
}

// Halves go to the even neighbour, what has no neighbour above becomes infinite, and NaN stays NaN.
TEST_P(GemmInvarianceTest, ActivationsAreRoundedToTheNearest) {
  const bool rounds = GetParam().backend == "cpu-bf16";
  Weight weight = RandomWeight(DType::kBF16, 1, 1);
  reference::Store(DType::kBF16, 1.0F, weight.rows.data(), 0);
  const DeviceArray packed = Pack(weight, {1});
  constexpr float kMost = std::numeric_limits<float>::max();
  constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();
  const std::vector<std::pair<float, float>> cases = {
      {0x1.01p0F, 0x1.00p0F},   {0x1.03p0F, 0x1.04p0F},     {0x1.0101p0F, 0x1.02p0F},
      {-0x1.01p0F, -0x1.00p0F}, {0x1.00ffffp0F, 0x1.00p0F}, {kMost, HUGE_VALF}};
  for (const auto& [value, rounded] : cases) {
    EXPECT_EQ(Multiply({value}, weight, packed).front(), rounds ? rounded : value);
  }
  EXPECT_TRUE(std::isnan(Multiply({kNaN}, weight, packed).front()));
}

std::vector<OpsSetup> AllCpuSetups() {
  std::vector<OpsSetup> setups = CpuOpsSetups();
  std::ranges::move(CpuOpsSetups("cpu-bf16"), std::back_inserter(setups));
  return setups;
}

TANDEM_INSTANTIATE_OPS_TEST_ON(GemmInvarianceTest, AllCpuSetups());

}  // namespace
}  // namespace tandem::gemm_invariance_test
