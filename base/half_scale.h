#pragma once

#include <bit>
#include <cstdint>

namespace tandem {

// Scales of groups of quantised numbers, as the bits of an f16 that is not negative. The bits of
// infinity mark a group that no scale fits.
inline constexpr uint16_t kExactGroup = 0x7c00;
inline constexpr uint32_t kHalfBiasBits = uint32_t{127 - 15} << 23;

// The smallest f16 that is at least `value`, which is not negative: a scale that was rounded down
// would let the largest code of its group overflow. kExactGroup for a value that is too large, and
// for NaN.
inline uint16_t HalfAtLeast(float value) {
  if (!(value <= 65504.0f)) return kExactGroup;
  if (value < 0x1p-14f) {  // subnormal: a multiple of 2^-24
    const float steps = value * 0x1p24f;
    const auto whole = static_cast<uint32_t>(steps);
    return static_cast<uint16_t>(whole + (static_cast<float>(whole) < steps ? 1 : 0));
  }
  return static_cast<uint16_t>((std::bit_cast<uint32_t>(value) - kHalfBiasBits + 0x1fff) >> 13);
}

// The value of the f16 with the bits `half`, which is below kExactGroup.
inline float FloatOfHalf(uint16_t half) {
  if (half < 0x400) return static_cast<float>(half) * 0x1p-24f;
  return std::bit_cast<float>((uint32_t{half} << 13) + kHalfBiasBits);
}

}  // namespace tandem
