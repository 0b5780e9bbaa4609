#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <iterator>
#include <utility>
#include <vector>

#include "fmt/format.h"
#include "tests/support/ops_fixture.h"
#include "tests/support/reference_ops.h"

// Weights that are codes (kernels/weight_format.h), quantised when they are packed or so already:
// what they become, computed here once more, one by one, and what their products must be.

namespace tandem::coded_weights {

inline constexpr DType kStoredTypes[] = {DType::kBF16, DType::kF16, DType::kF32};

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

inline float RoundToBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  const uint32_t below = bits & 0xffff0000;
  const uint32_t rest = bits & 0xffff;
  const bool up = rest > 0x8000 || (rest == 0x8000 && (bits & 0x10000) != 0);
  return std::bit_cast<float>(below + (up ? 0x10000 : 0));
}

// Packs weights, multiplies with them, and compares with the products of the values that their codes
// and scales stand for: on the CPU bit for bit. Codes are of `format_`, int8 unless a test's own
// fixture says otherwise.
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

// These backends, and the CPU that rounds activations.
inline std::vector<OpsSetup> Setups(std::vector<OpsSetup> setups) {
  std::ranges::move(CpuOpsSetups("cpu-bf16"), std::back_inserter(setups));
  return setups;
}

}  // namespace tandem::coded_weights
