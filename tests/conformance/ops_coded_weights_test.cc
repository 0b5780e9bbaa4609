#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <limits>
#include <string>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "gmock/gmock.h"
#include "tests/support/ops_fixture.h"
#include "tests/support/reference_ops.h"

// Weights that are codes (kernels/weight_format.h), quantised when they are packed or so already:
// what they become, computed here once more, one by one, that the embedding has exactly these
// values on every backend, and that products are those of these values: on the CPU bit for bit.

namespace tandem::ops_coded_weights_test {
namespace {

using testing::AllOf;
using testing::HasSubstr;

constexpr DType kStoredTypes[] = {DType::kBF16, DType::kF16, DType::kF32};

// A weight [n, k] of a checkpoint, and what it becomes.
struct QuantisedWeight {
  DType dtype;
  int64_t n;
  int64_t k;
  std::vector<std::byte> rows;  // row-major, as in a checkpoint
  std::vector<float> floats;    // of the rows
  std::vector<float> scales;    // of each element's group
  std::vector<float> codes;
  std::vector<float> quantised;  // scale times code
};

float RoundToBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t below = bits & 0xffff0000;
  const uint32_t rest = bits & 0xffff;
  const bool up = rest > 0x8000 || (rest == 0x8000 && (bits & 0x10000) != 0);
  return std::bit_cast<float>(below + (up ? 0x10000 : 0));
}

class Int8WeightsTest : public OpsTest {
 protected:
  static QuantisedWeight Quantise(DType dtype, int64_t n, int64_t k, std::vector<float> values) {
    QuantisedWeight w{.dtype = dtype, .n = n, .k = k};
    w.rows.resize(static_cast<size_t>(n * k * SizeOf(dtype)));
    for (int64_t i = 0; i < n * k; ++i) {
      reference::Store(dtype, values[static_cast<size_t>(i)], w.rows.data(), i);
      w.floats.push_back(static_cast<float>(reference::Load(dtype, w.rows.data(), i)));
    }
    for (int64_t row = 0; row < n; ++row) {
      for (int64_t first = 0; first < k; first += 32) {
        const float* group = w.floats.data() + row * k + first;
        const int64_t count = std::min<int64_t>(32, k - first);
        float largest = 0;
        for (int64_t i = 0; i < count; ++i) largest = std::max(largest, std::abs(group[i]));
        const float scale = RoundToBf16(largest / 127);
        for (int64_t i = 0; i < count; ++i) {
          const float code =
              scale == 0 ? 0 : std::clamp(std::nearbyint(group[i] * (1 / scale)), -127.f, 127.f);
          w.scales.push_back(scale);
          w.codes.push_back(code + 0.0f);
          w.quantised.push_back((code + 0.0f) * scale);  // integers have no negative zero
        }
      }
    }
    return w;
  }

  QuantisedWeight RandomWeight(DType dtype, int64_t n, int64_t k) {
    return Quantise(dtype, n, k, Random(n * k));
  }

  PackedMatrix Matrix(const QuantisedWeight& w, const DeviceArray& packed) {
    return {static_cast<std::byte*>(packed.data()), format_, w.n, w.k};
  }

  DeviceArray NewPacked(int64_t n, int64_t k) {
    const int64_t bytes = ops().PackedBytes(format_, n, k);
    return ToDevice(std::vector<std::byte>(static_cast<size_t>(bytes)));
  }

  absl::Status PackInto(const DeviceArray& packed, const QuantisedWeight& w) {
    const DeviceArray rows = ToDevice(w.rows);
    const TensorView sources[] = {TensorView(rows.data(), w.dtype, {w.n, w.k})};
    return ops().PackWeight(stream(), Matrix(w, packed), sources);
  }

  DeviceArray Pack(const QuantisedWeight& w) {
    DeviceArray packed = NewPacked(w.n, w.k);
    const absl::Status status = PackInto(packed, w);
    EXPECT_TRUE(status.ok()) << status;
    return packed;
  }

  std::vector<float> Multiply(const std::vector<float>& x, const QuantisedWeight& w,
                              const DeviceArray& packed) {
    const int64_t num_rows = static_cast<int64_t>(x.size()) / w.k;
    const DeviceArray device_x = ToDevice(x);
    const DeviceArray out = NewOutput(num_rows * w.n);
    const absl::Status status = ops().Gemm(stream(), {.x = Tensor(device_x, {num_rows, w.k}),
                                                      .weight = Matrix(w, packed),
                                                      .out = Tensor(out, {num_rows, w.n})});
    EXPECT_TRUE(status.ok()) << status;
    return out.Download<float>();
  }

  static bool RoundsActivations() { return GetParam().backend == "cpu-bf16"; }
  static std::vector<float> AsMultiplied(std::vector<float> x) {
    return RoundsActivations() ? Rounded(DType::kBF16, std::move(x)) : x;
  }

  // The product of `x` with a group of codes, of each pair the second first, and then with their
  // scale.
  static float AddGroup(const float* x, const float* codes, const float* quantised, int64_t count,
                        float sum) {
    float part = 0;
    float scale = 0;
    for (int64_t i = 0; i < (count + 1) / 2 * 2; ++i) {
      const int64_t at = i ^ 1;
      if (at == count) continue;
      part = std::fma(x[at], codes[at], part);
      if (codes[at] != 0) scale = quantised[at] / codes[at];
    }
    return std::fma(part, scale, sum);
  }

  static std::vector<float> ChainsOfPairs(const std::vector<float>& activations,
                                          const QuantisedWeight& w) {
    const std::vector<float> x = AsMultiplied(activations);
    std::vector<float> out;
    for (size_t row = 0; row < x.size(); row += static_cast<size_t>(w.k)) {
      for (int64_t n = 0; n < w.n; ++n) {
        float sum = 0;
        for (int64_t k = 0; k < w.k; k += 32) {
          const int64_t at = n * w.k + k;
          sum = AddGroup(x.data() + row + k, w.codes.data() + at, w.quantised.data() + at,
                         std::min<int64_t>(32, w.k - k), sum);
        }
        out.push_back(sum);
      }
    }
    return out;
  }

  static std::vector<float> Chains(const std::vector<float>& x, const QuantisedWeight& w) {
    if (RoundsActivations()) return ChainsOfPairs(x, w);
    std::vector<float> out;
    for (size_t row = 0; row < x.size(); row += static_cast<size_t>(w.k)) {
      for (int64_t n = 0; n < w.n; ++n) {
        float sum = 0;
        for (int64_t k = 0; k < w.k; ++k) {
          const float weight = w.quantised[static_cast<size_t>(n * w.k + k)];
          sum = std::fma(x[row + static_cast<size_t>(k)], weight, sum);
        }
        out.push_back(sum);
      }
    }
    return out;
  }

  void ExpectProducts(const std::vector<float>& actual, const std::vector<float>& x,
                      const QuantisedWeight& w) {
    if (always_batch_invariant()) {
      EXPECT_TRUE(BitwiseEqual(actual, Chains(x, w)));
    } else {
      const std::vector<float> no_bias(static_cast<size_t>(w.n), 0.0f);
      EXPECT_LT(RelativeError(actual, Sums(x, w, no_bias)), kBound);
    }
  }

  // Products with x of a type of 16 bits. Few rows take each weight as it is; many round it.
  void ExpectProductsOf(DType act, int64_t num_rows, const QuantisedWeight& w,
                        const DeviceArray& packed) {
    const std::vector<float> x = Rounded(act, Random(num_rows * w.k));
    const std::vector<float> bias = Random(w.n);
    const DeviceArray device_x = ToDeviceAs(act, x), device_bias = ToDevice(bias);
    for (const DType out_type : {DType::kF32, act}) {
      SCOPED_TRACE(
          fmt::format("{} n {} k {} rows {} to {}", Name(act), w.n, w.k, num_rows, Name(out_type)));
      const DeviceArray out = NewOutput(num_rows * w.n, out_type);
      const GemmArgs args = {.x = Tensor(device_x, {num_rows, w.k}, act),
                             .weight = Matrix(w, packed),
                             .bias = Tensor(device_bias, {w.n}),
                             .out = Tensor(out, {num_rows, w.n}, out_type)};
      ASSERT_TRUE(ops().PrepareGemm(args).ok());
      const absl::Status status = ops().Gemm(stream(), args);
      ASSERT_TRUE(status.ok()) << status;
      const bool rounds_weights = num_rows > kExactRows || w.k % 8 != 0;
      const double bound =
          std::max(Bound(kBound, rounds_weights ? act : DType::kF32), Bound(kBound, out_type));
      EXPECT_LT(RelativeError(out.Floats(out_type), Sums(x, w, bias)), bound);
    }
  }

  static std::vector<double> Sums(const std::vector<float>& activations, const QuantisedWeight& w,
                                  const std::vector<float>& bias) {
    const std::vector<float> x = AsMultiplied(activations);
    std::vector<double> out;
    for (size_t row = 0; row < x.size(); row += static_cast<size_t>(w.k)) {
      for (int64_t n = 0; n < w.n; ++n) {
        double sum = bias[static_cast<size_t>(n)];
        for (int64_t k = 0; k < w.k; ++k) {
          sum += double{x[row + static_cast<size_t>(k)]} *
                 w.quantised[static_cast<size_t>(n * w.k + k)];
        }
        out.push_back(sum);
      }
    }
    return out;
  }

  static constexpr double kBound = 2e-6;  // relative L2 of f32 arithmetic
  static constexpr int64_t kExactRows = 8;
  WeightFormat format_ = WeightFormat::Int8();
};

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

// Also on the CPU that rounds activations.
std::vector<OpsSetup> Setups(std::vector<OpsSetup> setups) {
  std::ranges::move(CpuOpsSetups("cpu-bf16"), std::back_inserter(setups));
  return setups;
}

TANDEM_INSTANTIATE_OPS_TEST_ON(Int8WeightsTest, Setups(AllOpsSetups()));
TANDEM_INSTANTIATE_OPS_TEST_ON(Int8WeightsOnCpuTest, Setups(CpuOpsSetups()));

// Codes that are floats of 8 bits, as a checkpoint has them with their scales.
class F8WeightsTest : public Int8WeightsTest {
 protected:
  F8WeightsTest() { format_ = WeightFormat::F8E4M3(); }

  // Every code that is a number, and scales that a bf16 has.
  QuantisedWeight RandomCodes(int64_t n, int64_t k) {
    QuantisedWeight w{.dtype = DType::kF8E4M3, .n = n, .k = k};
    const int64_t groups = (k + 31) / 32;
    for (int64_t i = 0; i < n * groups; ++i) {
      w.scales.push_back(RoundToBf16(0.01f + std::abs(Random(1)[0])));
    }
    for (int64_t i = 0; i < n * k; ++i) {
      auto code = static_cast<uint8_t>(i * 101 + i / 256);
      if (code % 128 == 127) code -= 1;
      w.rows.push_back(static_cast<std::byte>(code));
      const auto number = static_cast<float>(reference::Load(DType::kF8E4M3, w.rows.data(), i));
      w.codes.push_back(number);
      w.quantised.push_back(number * w.scales[static_cast<size_t>(i / k * groups + i % k / 32)]);
    }
    return w;
  }

  absl::Status PackCodes(const DeviceArray& packed, const QuantisedWeight& w) {
    const DeviceArray rows = ToDevice(w.rows);
    const DeviceArray scales = ToDevice(w.scales);
    const TensorView sources[] = {TensorView(rows.data(), w.dtype, {w.n, w.k})};
    return ops().PackWeight(stream(), Matrix(w, packed), sources,
                            Tensor(scales, {w.n, (w.k + 31) / 32}));
  }
};

TEST_P(F8WeightsTest, ProductsAreThoseOfCodesAndScales) {
  for (int64_t n : {1, 32, 97}) {
    for (int64_t k : {1, 31, 33, 320}) {
      const QuantisedWeight w = RandomCodes(n, k);
      const DeviceArray packed = NewPacked(n, k);
      ASSERT_TRUE(PackCodes(packed, w).ok());
      for (int64_t num_rows : {1, 3, 4, 12, 50}) {
        SCOPED_TRACE(fmt::format("n {} k {} rows {}", n, k, num_rows));
        const std::vector<float> x = Random(num_rows * k);
        ExpectProducts(Multiply(x, w, packed), x, w);
      }
    }
  }
}

TEST_P(F8WeightsTest, TakesEveryActivation) {
  for (const DType act : ActivationTypes()) {
    if (act == DType::kF32) continue;
    for (const int64_t k : {40, 256}) {
      const QuantisedWeight w = RandomCodes(40, k);
      const DeviceArray packed = NewPacked(40, k);
      ASSERT_TRUE(PackCodes(packed, w).ok());
      for (const int64_t num_rows : {1, 8, 9}) ExpectProductsOf(act, num_rows, w, packed);
    }
  }
}

// More than a GPU widens at once.
TEST_P(F8WeightsTest, TakesALargeMatrix) {
  const QuantisedWeight w = RandomCodes(1100, 8192);
  const DeviceArray packed = NewPacked(w.n, w.k);
  ASSERT_TRUE(PackCodes(packed, w).ok());
  ExpectProductsOf(DType::kF32, 9, w, packed);
}

TEST_P(F8WeightsTest, TheEmbeddingHasTheSameValues) {
  const QuantisedWeight w = RandomCodes(40, 100);
  const DeviceArray packed = NewPacked(40, 100);
  ASSERT_TRUE(PackCodes(packed, w).ok());
  const std::vector<int32_t> ids = {39, 0, 33};
  const DeviceArray out = NewOutput(3 * 100);
  ASSERT_TRUE(ops().Embedding(stream(), {ids, Matrix(w, packed), Tensor(out, {3, 100})}).ok());
  std::vector<float> expected;
  for (int32_t id : ids) {
    const auto row = w.quantised.begin() + id * 100;
    expected.insert(expected.end(), row, row + 100);
  }
  EXPECT_TRUE(BitwiseEqual(out.Download<float>(), std::span<const float>(expected)));
}

TEST_P(F8WeightsTest, ACodeThatIsNoNumberIsRefusedWithItsRow) {
  for (const int bad : {0x7f, 0xff}) {
    QuantisedWeight w = RandomCodes(40, 50);
    w.rows[35 * 50 + 49] = static_cast<std::byte>(bad);
    const absl::Status status = PackCodes(NewPacked(40, 50), w);
    EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
    EXPECT_THAT(std::string(status.message()), AllOf(HasSubstr("row 35"), HasSubstr("no number")));
  }
}

TEST_P(F8WeightsTest, TakesNoFloatsAndNoCodesWithoutScales) {
  const QuantisedWeight floats = RandomWeight(DType::kBF16, 8, 32);
  EXPECT_THAT(std::string(PackCodes(NewPacked(8, 32), floats).message()),
              HasSubstr("sources[0] is bf16"));
  const QuantisedWeight codes = RandomCodes(8, 32);
  EXPECT_THAT(std::string(PackInto(NewPacked(8, 32), codes).message()), HasSubstr("scales"));
}

TANDEM_INSTANTIATE_OPS_TEST_ON(F8WeightsTest, Setups(AllOpsSetups()));

}  // namespace
}  // namespace tandem::ops_coded_weights_test
