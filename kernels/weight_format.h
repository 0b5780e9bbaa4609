#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#include "base/dtype.h"

namespace tandem {

// How a backend keeps the elements of a packed weight: as floats of one type, or as 8-bit integers in
// groups that share a scale. A type of its own beside DType, because an element of a group has no size
// of its own.
//   int8  w[output, input] = scale[output, input / 32] * code[output, input], code from -127 to 127,
//         scale = bf16(max |w| of the group / 127), code = the nearest integer to w * (1 / scale),
//         halves to even. What is computed with is the f32 product of scale and code.
class WeightFormat {
 public:
  // f32, f16 or bf16. Implicit, because every float type is a format.
  constexpr WeightFormat(DType floats) : dtype_(floats) {}  // NOLINT(google-explicit-constructor)
  static constexpr WeightFormat Int8() {
    WeightFormat format(DType::kBF16);
    format.is_int8_ = true;
    return format;
  }

  constexpr bool is_int8() const { return is_int8_; }
  // The type of the floats; of int8 the type of its scales.
  constexpr DType dtype() const { return dtype_; }

  friend constexpr bool operator==(WeightFormat, WeightFormat) = default;

 private:
  DType dtype_;
  bool is_int8_ = false;
};

// Inputs that share a scale; a last group of fewer inputs has one, too.
inline constexpr int64_t kInt8GroupInputs = 32;
inline constexpr float kMaxInt8Code = 127;

// The bits of the bf16 that is nearest to `value`, which is finite and not negative; halves to even.
constexpr uint16_t NearestBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
constexpr float FloatOfBf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// Bytes per element, with the share of a scale; no padding is counted.
constexpr double BytesPerElement(WeightFormat format) {
  const auto float_bytes = static_cast<double>(SizeOf(format.dtype()));
  return format.is_int8() ? 1 + float_bytes / kInt8GroupInputs : float_bytes;
}

// "f32", "f16", "bf16", "int8".
constexpr std::string_view Name(WeightFormat format) {
  return format.is_int8() ? "int8" : Name(format.dtype());
}

}  // namespace tandem
