#pragma once

#include <bit>
#include <cstdint>
#include <string_view>

#include "base/dtype.h"

namespace tandem {

// How a backend keeps the elements of a packed weight. A type of its own beside DType, because an element of
// a group has no size of its own.
//   floats  f32, f16 or bf16
//   codes   of 8 bits, in groups of inputs that share a scale, a bf16: w[output, input] =
//           scale[output, input / 32] * code[output, input]. What is computed with is their f32 product.
//     int8    integers from -128 to 127. Where they are made of floats, scale = bf16(max |w| of the group /
//             127) and code = the nearest integer to w * (1 / scale), halves to even, from -127 to 127.
//     f8e4m3  floats of 8 bits, as a checkpoint has them.
class WeightFormat {
 public:
  // f32, f16 or bf16. Implicit, because every float type is a format.
  constexpr WeightFormat(DType dtype) : dtype_(dtype) {}  // NOLINT(google-explicit-constructor)
  static constexpr WeightFormat Int8() { return DType::kI8; }
  static constexpr WeightFormat F8E4M3() { return DType::kF8E4M3; }

  constexpr bool has_codes() const { return dtype_ == DType::kI8 || dtype_ == DType::kF8E4M3; }
  // The type of the floats, or of the codes.
  constexpr DType dtype() const { return dtype_; }

  friend constexpr bool operator==(WeightFormat, WeightFormat) = default;

 private:
  DType dtype_;
};

// Inputs that share a scale; a last group of fewer inputs has one, too.
inline constexpr int64_t kCodeGroupInputs = 32;
inline constexpr float kMaxInt8Code = 127;

// The bits of the bf16 that is nearest to `value`, which is finite and not negative; halves to
// even.
constexpr uint16_t NearestBf16(float value) {
  const auto bits = std::bit_cast<uint32_t>(value);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}
constexpr float FloatOfBf16(uint16_t bits) { return std::bit_cast<float>(uint32_t{bits} << 16); }

// The value of an e4m3 code that is not NaN: its sign, exponent and fraction placed in an f32 give
// 2^-120 times the value.
constexpr float FloatOfF8(uint8_t code) {
  const uint32_t bits = uint32_t{code & 0x80u} << 24 | uint32_t{code & 0x7fu} << 20;
  return std::bit_cast<float>(bits) * 0x1p120f;
}
constexpr bool IsF8NaN(uint8_t code) { return (code & 0x7f) == 0x7f; }

// Bytes per element, including its share of a scale; no padding is counted.
constexpr double BytesPerElement(WeightFormat format) {
  const auto code_bytes = static_cast<double>(SizeOf(format.dtype()));
  const auto scale_bytes = static_cast<double>(SizeOf(DType::kBF16));
  return format.has_codes() ? code_bytes + scale_bytes / kCodeGroupInputs : code_bytes;
}

// The format's name: "f32", "f16", "bf16", "int8", "f8e4m3".
constexpr std::string_view Name(WeightFormat format) {
  return format.dtype() == DType::kI8 ? "int8" : Name(format.dtype());
}

}  // namespace tandem
