#include <algorithm>
#include <cmath>
#include <cstdint>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "tests/conformance/coded_weights_fixture.h"

// Weights that are quantised to 8-bit integers when they are packed: that the embedding has exactly
// these values on every backend, and that products are those of these values.

namespace tandem::ops_coded_weights_test {
namespace {

using coded_weights::Int8WeightsTest;
using coded_weights::kStoredTypes;
using coded_weights::QuantisedWeight;
using coded_weights::Setups;
using testing::AllOf;
using testing::HasSubstr;

TEST_P(Int8WeightsTest, ProductsAreThoseOfTheQuantisedWeights) {
  for (DType dtype : kStoredTypes) {
    for (int64_t n : {1, 32, 97}) {
      for (int64_t k : {1, 31, 32, 33, 129, 320}) {
        const QuantisedWeight w = RandomWeight(dtype, n, k);
        const DeviceArray packed = Pack(w);
        for (int64_t num_rows : {1, 2, 3, 12, 13, 50}) {
          SCOPED_TRACE(fmt::format("{} n {} k {} rows {}", Name(dtype), n, k, num_rows));
          const std::vector<float> x = Random(num_rows * k);
          ExpectProducts(Multiply(x, w, packed), x, w);
        }
      }
    }
  }
}

// Rows of several turns of a kernel, units that are not full, and so many outputs that each block
// takes more.
TEST_P(Int8WeightsTest, TakesEveryActivation) {
  for (const DType act : ActivationTypes()) {
    if (act == DType::kF32) continue;
    for (const auto& [n, k] : {std::pair<int64_t, int64_t>{70, 8},
                               {16, 72},
                               {33, 512},
                               {17, 2312},
                               {40, 36},
                               {Size(64, 1100), 96}}) {
      const QuantisedWeight w = RandomWeight(act, n, k);
      const DeviceArray packed = Pack(w);
      for (const int64_t num_rows : {1, 3, 8, 9, 40}) ExpectProductsOf(act, num_rows, w, packed);
    }
  }
}

// A product of few rows, however many: each row alone.
TEST_P(Int8WeightsTest, AFewRowsDependOnNoOthers) {
  const QuantisedWeight w = RandomWeight(DType::kBF16, 70, 600);
  const DeviceArray packed = Pack(w);
  const std::vector<float> x = Random(kExactRows * w.k);
  const std::vector<float> all = Multiply(x, w, packed);
  for (int64_t num_rows = 1; num_rows < kExactRows; ++num_rows) {
    const std::vector<float> last(x.end() - num_rows * w.k, x.end());
    EXPECT_TRUE(BitwiseEqual(Multiply(last, w, packed), std::span<const float>(all).last(
                                                            static_cast<size_t>(num_rows * w.n))));
  }
}

TEST_P(Int8WeightsTest, AddsToWhatIsThere) {
  const QuantisedWeight w = RandomWeight(DType::kF32, 40, 128);
  const DeviceArray packed = Pack(w);
  for (const int64_t num_rows : {2, 20}) {
    const std::vector<float> x = Random(num_rows * w.k);
    const std::vector<float> before = Random(num_rows * w.n);
    const DeviceArray device_x = ToDevice(x), out = ToDevice(before);
    ASSERT_TRUE(ops()
                    .Gemm(stream(), {.x = Tensor(device_x, {num_rows, w.k}),
                                     .weight = Matrix(w, packed),
                                     .out = Tensor(out, {num_rows, w.n}),
                                     .output = GemmOutput::kAccumulate})
                    .ok());
    std::vector<double> expected = Sums(x, w, std::vector<float>(static_cast<size_t>(w.n), 0.0f));
    for (size_t i = 0; i < expected.size(); ++i) expected[i] += before[i];
    EXPECT_LT(RelativeError(out.Download<float>(), expected), kBound);
  }
}

// A GPU rounds the weights for many rows, and not for few.
class Int8WeightsOnCpuTest : public Int8WeightsTest {};

TEST_P(Int8WeightsOnCpuTest, ARowDependsNeitherOnOtherRowsNorOnThreads) {
  constexpr int64_t kRows = 300;
  const QuantisedWeight w = RandomWeight(DType::kBF16, 161, 333);
  const std::vector<float> x = Random(kRows * w.k);
  const std::vector<float> all = Chains(x, w);
  for (int num_threads : ThreadCounts()) {
    UseThreads(num_threads);
    const DeviceArray packed = Pack(w);
    for (int64_t num_rows : {1, 2, 4, 12, 13, 25, 36, 37, 64, 300}) {
      SCOPED_TRACE(fmt::format("{} threads, {} rows", num_threads, num_rows));
      const std::vector<float> last(x.end() - num_rows * w.k, x.end());
      EXPECT_TRUE(
          BitwiseEqual(Multiply(last, w, packed),
                       std::span<const float>(all).last(static_cast<size_t>(num_rows * w.n))));
    }
  }
}

TEST_P(Int8WeightsTest, TheEmbeddingHasTheSameValues) {
  for (DType dtype : kStoredTypes) {
    for (int64_t k : {1, 32, 100}) {
      SCOPED_TRACE(fmt::format("{} k {}", Name(dtype), k));
      const QuantisedWeight w = RandomWeight(dtype, 77, k);
      const DeviceArray packed = Pack(w);
      const std::vector<int32_t> ids = {76, 0, 31, 32, 33, 0};
      const DeviceArray out = NewOutput(6 * k);
      ASSERT_TRUE(ops().Embedding(stream(), {ids, Matrix(w, packed), Tensor(out, {6, k})}).ok());
      std::vector<float> expected;
      for (int32_t id : ids) {
        const auto row = w.quantised.begin() + id * k;
        expected.insert(expected.end(), row, row + k);
      }
      EXPECT_TRUE(BitwiseEqual(out.Download<float>(), std::span<const float>(expected)));
    }
  }
}

// The scale's own rounding to bf16 moves the largest value of a group by up to half a code more.
TEST_P(Int8WeightsTest, EachWeightIsWithinACodeOfItsOwn) {
  const QuantisedWeight w = RandomWeight(DType::kF32, 8, 512);
  const DeviceArray packed = Pack(w);
  std::vector<float> identity(512 * 512, 0.0f);
  for (size_t i = 0; i < 512; ++i) identity[i * 513] = 1;
  const std::vector<float> columns = Multiply(identity, w, packed);  // [k, n]
  double squares = 0;
  for (size_t i = 0; i < w.floats.size(); ++i) {
    const size_t row = i / 512;
    const float is = columns[i % 512 * 8 + row];
    EXPECT_LE(std::abs(is - w.floats[i]), 1.01 * w.scales[i]) << i;
    squares += std::pow((is - w.floats[i]) / w.scales[i], 2);
  }
  // Uniform within half a code: 1/12.
  EXPECT_LT(squares / static_cast<double>(w.floats.size()), 0.095);
}

TEST_P(Int8WeightsTest, GroupsOfNothingAndOfTheLeastAreZero) {
  std::vector<float> values(4 * 64, 0.0f);
  std::fill_n(values.begin() + 64, 32, 1e-44f);  // no scale of it has an inverse
  std::fill_n(values.begin() + 128, 32, -3.0f);
  const QuantisedWeight w = Quantise(DType::kF32, 4, 64, values);
  const DeviceArray packed = Pack(w);
  const std::vector<float> ones(64, 1.0f);
  const std::vector<float> out = Multiply(ones, w, packed);
  EXPECT_EQ(out[0], 0);
  EXPECT_EQ(out[1], 0);
  EXPECT_NEAR(out[2], -96, 0.5);
  EXPECT_EQ(out[3], 0);
}

TEST_P(Int8WeightsTest, ValuesThatHaveNoCodeAreRefusedWithTheirRow) {
  for (const float bad : {std::numeric_limits<float>::infinity(), -HUGE_VALF, std::nanf("")}) {
    for (DType dtype : kStoredTypes) {
      std::vector<float> values = Random(40 * 50);
      values[35 * 50 + 49] = bad;
      const QuantisedWeight w = Quantise(dtype, 40, 50, values);
      const absl::Status status = PackInto(NewPacked(40, 50), w);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      EXPECT_THAT(std::string(status.message()),
                  AllOf(HasSubstr("row 35"), HasSubstr("infinite or no number")));
    }
  }
}

// Rows one after the other, and such as lie apart.
TEST_P(Int8WeightsTest, SourcesAreStacked) {
  const QuantisedWeight w = RandomWeight(DType::kBF16, 48, 100);
  const DeviceArray rows = ToDevice(w.rows);
  auto* const first = static_cast<std::byte*>(rows.data());
  const TensorView sources[] = {
      TensorView(first, w.dtype, {16, w.k}),
      TensorView(first + 16 * w.k * SizeOf(w.dtype), w.dtype, {16, w.k}).WithRowStride(2 * w.k)};
  const DeviceArray packed = NewPacked(32, w.k);
  const PackedMatrix matrix = {static_cast<std::byte*>(packed.data()), format_, 32, w.k};
  ASSERT_TRUE(ops().PackWeight(stream(), matrix, sources).ok());
  const std::vector<int32_t> ids = {0, 15, 16, 17, 31};
  const DeviceArray out = NewOutput(5 * w.k);
  ASSERT_TRUE(ops().Embedding(stream(), {ids, matrix, Tensor(out, {5, w.k})}).ok());
  std::vector<float> expected;
  for (const int64_t row : {0, 15, 16, 18, 46}) {
    const auto from = w.quantised.begin() + row * w.k;
    expected.insert(expected.end(), from, from + w.k);
  }
  EXPECT_TRUE(BitwiseEqual(out.Download<float>(), std::span<const float>(expected)));
}

TEST_P(Int8WeightsTest, TakesLittleMoreThanAByteEach) {
  EXPECT_EQ(ops().PackedBytes(WeightFormat::Int8(), 64, 1024), 64 * 1024 * 34 / 32);
}

TANDEM_INSTANTIATE_OPS_TEST_ON(Int8WeightsTest, Setups(AllOpsSetups()));
TANDEM_INSTANTIATE_OPS_TEST_ON(Int8WeightsOnCpuTest, Setups(CpuOpsSetups()));

}  // namespace
}  // namespace tandem::ops_coded_weights_test
