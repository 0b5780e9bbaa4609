#include "tests/support/reference_floats.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <limits>
#include <vector>

#include "base/check.h"

namespace tandem::reference {
namespace {

// A binary float of 16 bits: one sign, the rest exponent and fraction.
struct SmallFloat {
  int fraction_bits;
  int exponent_bias;
};
constexpr SmallFloat kHalf = {10, 15};
constexpr SmallFloat kBrain = {7, 127};

double ValueOf(SmallFloat format, uint16_t bits) {
  const int exponent = (bits & 0x7fff) >> format.fraction_bits;
  const int fraction = bits & ((1 << format.fraction_bits) - 1);
  const int all_ones = (1 << (15 - format.fraction_bits)) - 1;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == all_ones) {
    return fraction != 0 ? std::numeric_limits<double>::quiet_NaN() : sign * INFINITY;
  }
  const int unit = std::max(exponent, 1) - format.exponent_bias - format.fraction_bits;
  const int hidden = exponent == 0 ? 0 : 1 << format.fraction_bits;
  return sign * std::ldexp(hidden + fraction, unit);
}

// Tests read the same codes millions of times, so each code is decoded once.
std::vector<double> AllValues(SmallFloat format) {
  std::vector<double> values(1 << 16);
  for (size_t code = 0; code < values.size(); ++code) {
    values[code] = ValueOf(format, static_cast<uint16_t>(code));
  }
  return values;
}

double Decode(SmallFloat format, uint16_t bits) {
  static const std::vector<double> half = AllValues(kHalf);
  static const std::vector<double> brain = AllValues(kBrain);
  return (format.fraction_bits == kHalf.fraction_bits ? half : brain)[bits];
}

// The finite E4M3 of OCP's FP8: no infinities, and one NaN of each sign.
constexpr double kLargestE4M3 = 448;

double ValueOfE4M3(uint8_t bits) {
  const int exponent = (bits & 0x7f) >> 3;
  const int fraction = bits & 7;
  const double sign = (bits & 0x80) != 0 ? -1 : 1;
  if ((bits & 0x7f) == 0x7f) return std::numeric_limits<double>::quiet_NaN();
  return sign * std::ldexp((exponent == 0 ? 0 : 8) + fraction, std::max(exponent, 1) - 10);
}

double DecodeE4M3(uint8_t bits) {
  static const std::array<double, 256> values = [] {
    std::array<double, 256> all;
    for (int code = 0; code < 256; ++code) all[code] = ValueOfE4M3(static_cast<uint8_t>(code));
    return all;
  }();
  return values[bits];
}

// Searches all codes for the nearest of those within the range.
uint8_t EncodeE4M3(double value) {
  if (std::isnan(value)) return 0x7f;
  const uint8_t sign = std::signbit(value) ? 0x80 : 0;
  const double magnitude = std::min(std::fabs(value), kLargestE4M3);
  uint8_t best = 0;
  for (uint8_t code = 1; code < 0x7f; ++code) {
    const double nearer =
        std::fabs(DecodeE4M3(best) - magnitude) - std::fabs(DecodeE4M3(code) - magnitude);
    if (nearer > 0 || (nearer == 0 && code % 2 == 0)) best = code;
  }
  return sign | best;
}

// Searches the sorted non-negative codes for the nearest: slow and hard to get wrong.
uint16_t Encode(SmallFloat format, double value) {
  const uint16_t sign = std::signbit(value) ? 0x8000 : 0;
  const auto infinity =
      static_cast<uint16_t>(((1 << (15 - format.fraction_bits)) - 1) << format.fraction_bits);
  if (std::isnan(value)) return infinity | 1u << (format.fraction_bits - 1);
  const double magnitude = std::fabs(value);
  uint16_t low = 0;
  uint16_t high = infinity - 1;  // the largest finite
  const double largest = Decode(format, high);
  const double step = largest - Decode(format, high - 1);
  if (magnitude >= largest + step / 2) return sign | infinity;
  while (low < high) {  // the largest code that is not above
    const auto middle = static_cast<uint16_t>((low + high + 1) / 2);
    if (Decode(format, middle) <= magnitude) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  if (low == infinity - 1) return sign | low;
  const double below = magnitude - Decode(format, low);
  const double above = Decode(format, low + 1) - magnitude;
  const bool up = above < below || (above == below && low % 2 == 1);
  return sign | static_cast<uint16_t>(low + (up ? 1 : 0));
}

}  // namespace

double Load(DType dtype, const void* data, int64_t index) {
  switch (dtype) {
    case DType::kF32:
      return static_cast<const float*>(data)[index];
    case DType::kF16:
      return Decode(kHalf, static_cast<const uint16_t*>(data)[index]);
    case DType::kBF16:
      return Decode(kBrain, static_cast<const uint16_t*>(data)[index]);
    case DType::kF8E4M3:
      return DecodeE4M3(static_cast<const uint8_t*>(data)[index]);
    default:
      break;
  }
  TANDEM_CHECK(false, "not a floating-point type");
}

void Store(DType dtype, double value, void* data, int64_t index) {
  if (dtype == DType::kF32) {
    static_cast<float*>(data)[index] = static_cast<float>(value);
    return;
  }
  if (dtype == DType::kF8E4M3) {
    static_cast<uint8_t*>(data)[index] = EncodeE4M3(value);
    return;
  }
  const SmallFloat format = dtype == DType::kF16 ? kHalf : kBrain;
  static_cast<uint16_t*>(data)[index] = Encode(format, value);
}

double Rounded(DType dtype, double value) {
  float storage = 0;
  Store(dtype, value, &storage, 0);
  return Load(dtype, &storage, 0);
}

}  // namespace tandem::reference
