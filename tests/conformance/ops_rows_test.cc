#include <cmath>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/support/ops_fixture.h"
#include "tests/support/reference_ops.h"

// A row's result has the same bits wherever the row lies in memory, and in a product of few rows
// also whatever the rows beside it.

namespace tandem::ops_rows_test {
namespace {

class RowsTest : public OpsTest {
 protected:
  // A matrix [rows, n] at `offset` elements into memory, its rows `stride` apart.
  struct Place {
    int64_t offset = 0;
    int64_t stride = 0;
  };
  static std::vector<Place> Places(int64_t n) {
    const int64_t padded = (n + 7) / 8 * 8;
    return {{0, padded}, {0, padded + 1}, {3, padded + 8}, {8, padded + 16}};
  }

  static TensorView Matrix(const DeviceArray& memory, const Place& place, int64_t rows, int64_t n,
                           DType dtype) {
    TensorView view = Tensor(memory, {rows, n}, dtype).WithRowStride(place.stride);
    view.data = static_cast<std::byte*>(view.data) + place.offset * SizeOf(dtype);
    return view;
  }

  DeviceArray Put(const std::vector<float>& values, const Place& place, int64_t n, DType dtype) {
    const int64_t rows = static_cast<int64_t>(values.size()) / n;
    std::vector<float> memory(static_cast<size_t>(place.offset + rows * place.stride), NAN);
    for (int64_t i = 0; i < rows * n; ++i) {
      const int64_t at = place.offset + i / n * place.stride + i % n;
      memory[static_cast<size_t>(at)] = values[static_cast<size_t>(i)];
    }
    return ToDeviceAs(dtype, memory);
  }

  static std::vector<float> Take(const DeviceArray& memory, const Place& place, int64_t rows,
                                 int64_t n, DType dtype) {
    const std::vector<float> all = memory.Floats(dtype);
    std::vector<float> values;
    for (int64_t row = 0; row < rows; ++row) {
      const auto begin = all.begin() + place.offset + row * place.stride;
      values.insert(values.end(), begin, begin + n);
    }
    return values;
  }

  DeviceArray Pack(const PackedMatrix& shape, const std::vector<float>& weight) {
    const DType dtype = shape.format.dtype();
    const DeviceArray rows = ToDeviceAs(dtype, weight);
    const int64_t bytes = ops().PackedBytes(dtype, shape.n, shape.k);
    DeviceArray packed = ToDevice(std::vector<std::byte>(static_cast<size_t>(bytes)));
    PackedMatrix matrix = shape;
    matrix.data = static_cast<std::byte*>(packed.data());
    const TensorView sources[] = {TensorView(rows.data(), dtype, {shape.n, shape.k})};
    EXPECT_TRUE(ops().PackWeight(stream(), matrix, sources).ok());
    return packed;
  }

  std::vector<float> Multiply(const std::vector<float>& x, DType act, PackedMatrix matrix,
                              const DeviceArray& packed) {
    matrix.data = static_cast<std::byte*>(packed.data());
    const int64_t rows = static_cast<int64_t>(x.size()) / matrix.k;
    const DeviceArray device_x = ToDeviceAs(act, x);
    const DeviceArray out = NewOutput(rows * matrix.n);
    EXPECT_TRUE(ops()
                    .Gemm(stream(), {.x = Tensor(device_x, {rows, matrix.k}, act),
                                     .weight = matrix,
                                     .out = Tensor(out, {rows, matrix.n})})
                    .ok());
    return out.Download<float>();
  }
};

TEST_P(RowsTest, ProductsOfFewRowsDependOnEachRowAlone) {
  constexpr int64_t kRows = 8;
  constexpr int64_t kOutputs = 37;
  for (DType act : ActivationTypes()) {
    const DType dtype = act == DType::kF32 ? DType::kBF16 : act;
    for (int64_t k : {8, 120, 1032, 2304}) {
      SCOPED_TRACE(std::string(Name(act)) + " " + std::to_string(k));
      const std::vector<float> x = Random(kRows * k);
      const std::vector<float> weight = Random(kOutputs * k);
      const PackedMatrix matrix = {nullptr, dtype, kOutputs, k};
      const DeviceArray packed = Pack(matrix, weight);
      const std::vector<float> together = Multiply(x, act, matrix, packed);
      for (int64_t rows : {1, 2, 5}) {
        const std::vector<float> last(x.end() - rows * k, x.end());
        const std::span<const float> expected(together);
        EXPECT_TRUE(BitwiseEqual(Multiply(last, act, matrix, packed),
                                 expected.last(static_cast<size_t>(rows * kOutputs))))
            << rows << " rows";
      }
    }
  }
}

// An output does not depend on how many there are beside it; so many fill any device.
TEST_P(RowsTest, ProductsOfFewRowsDependOnEachOutputAlone) {
  constexpr int64_t kRows = 3;
  constexpr int64_t kFew = 19;
  constexpr int64_t kInputs = 136;
  constexpr int64_t kMany = 17000;
  for (DType act : ActivationTypes()) {
    const DType dtype = act == DType::kF32 ? DType::kF16 : act;
    const std::vector<float> x = Random(kRows * kInputs);
    const std::vector<float> weight = Random(kMany * kInputs);
    const std::vector<float> first(weight.begin(), weight.begin() + kFew * kInputs);
    const PackedMatrix all = {nullptr, dtype, kMany, kInputs};
    const PackedMatrix few = {nullptr, dtype, kFew, kInputs};
    const DeviceArray packed_all = Pack(all, weight);
    const DeviceArray packed_few = Pack(few, first);
    const std::vector<float> out_all = Multiply(x, act, all, packed_all);
    const std::vector<float> out_few = Multiply(x, act, few, packed_few);
    for (int64_t row = 0; row < kRows; ++row) {
      EXPECT_TRUE(BitwiseEqual(std::span(out_all).subspan(static_cast<size_t>(row * kMany), kFew),
                               std::span(out_few).subspan(static_cast<size_t>(row * kFew), kFew)))
          << Name(act) << " row " << row;
    }
  }
}

TEST_P(RowsTest, NormsDoNotDependOnWhereRowsLie) {
  constexpr int64_t kRows = 3;
  for (DType act : ActivationTypes()) {
    for (int64_t n : {7, 33, 1100}) {
      SCOPED_TRACE(std::string(Name(act)) + " " + std::to_string(n));
      const std::vector<float> x = Random(kRows * n);
      const DeviceArray weight = ToDevice(Random(n));
      std::vector<float> expected;
      for (const Place& place : Places(n)) {
        const DeviceArray device_x = Put(x, place, n, DType::kF32);
        const DeviceArray out = NewOutput(place.offset + kRows * place.stride, act);
        ASSERT_TRUE(ops()
                        .RmsNorm(stream(), {.x = Matrix(device_x, place, kRows, n, DType::kF32),
                                            .weight = Tensor(weight, {n}),
                                            .out = Matrix(out, place, kRows, n, act)})
                        .ok());
        const std::vector<float> values = Take(out, place, kRows, n, act);
        if (expected.empty()) expected = values;
        EXPECT_TRUE(BitwiseEqual(values, expected)) << place.offset << ", " << place.stride;
      }
    }
  }
}

TEST_P(RowsTest, ActivationsDoNotDependOnWhereRowsLie) {
  constexpr int64_t kRows = 3;
  for (DType act : ActivationTypes()) {
    for (int64_t n : {1, 24, 37}) {
      SCOPED_TRACE(std::string(Name(act)) + " " + std::to_string(n));
      const std::vector<float> gate_up = Random(kRows * 2 * n, 3.0f);
      std::vector<float> expected;
      for (const Place& place : Places(2 * n)) {
        const DeviceArray in = Put(gate_up, place, 2 * n, act);
        const DeviceArray out = NewOutput(place.offset + kRows * place.stride, act);
        ASSERT_TRUE(ops()
                        .SiluMul(stream(), {.gate_up = Matrix(in, place, kRows, 2 * n, act),
                                            .out = Matrix(out, place, kRows, n, act)})
                        .ok());
        const std::vector<float> values = Take(out, place, kRows, n, act);
        if (expected.empty()) expected = values;
        EXPECT_TRUE(BitwiseEqual(values, expected)) << place.offset << ", " << place.stride;
      }
    }
  }
}

TANDEM_INSTANTIATE_OPS_TEST(RowsTest);

}  // namespace
}  // namespace tandem::ops_rows_test
