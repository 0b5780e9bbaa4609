#pragma once

#include <cstdint>

#include "base/check.h"
#include "base/dtype.h"

namespace tandem {

// Splits the bits of a float into its exponent and the rest, which is the sign above the mantissa.
// Exponents have at most 8 bits. Join(Exponent(w), Rest(w)) == w.
template <typename WordType, int kExponentBits, int kMantissaBits>
struct FloatFields {
  using Word = WordType;
  static constexpr int kRestBits = 1 + kMantissaBits;
  static constexpr uint32_t kMantissa = (uint32_t{1} << kMantissaBits) - 1;
  static constexpr uint32_t kExponent = (uint32_t{1} << kExponentBits) - 1;

  static uint8_t Exponent(Word word) {
    return static_cast<uint8_t>((uint32_t{word} >> kMantissaBits) & kExponent);
  }
  static Word Rest(Word word) {
    const uint32_t sign = uint32_t{word} >> (kExponentBits + kMantissaBits);
    return static_cast<Word>(sign << kMantissaBits | (word & kMantissa));
  }
  static Word Join(uint8_t exponent, Word rest) {
    const uint32_t sign = uint32_t{rest} >> kMantissaBits;
    return static_cast<Word>(sign << (kExponentBits + kMantissaBits) |
                             (exponent & kExponent) << kMantissaBits | (rest & kMantissa));
  }
};

using F32Fields = FloatFields<uint32_t, 8, 23>;
using F16Fields = FloatFields<uint16_t, 5, 10>;
using BF16Fields = FloatFields<uint16_t, 8, 7>;
using F8E4M3Fields = FloatFields<uint8_t, 4, 3>;

// Calls `function` with the FloatFields of `dtype`, which is a float type that KV can have.
template <typename Function>
auto WithFields(DType dtype, Function function) {
  switch (dtype) {
    case DType::kF32:
      return function(F32Fields());
    case DType::kF16:
      return function(F16Fields());
    case DType::kF8E4M3:
      return function(F8E4M3Fields());
    default:
      TANDEM_CHECK(dtype == DType::kBF16, "KV is not of this type");
      return function(BF16Fields());
  }
}

}  // namespace tandem
