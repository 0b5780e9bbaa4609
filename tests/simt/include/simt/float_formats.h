#pragma once

#include <bit>
#include <cmath>
#include <cstdint>

// bf16, f16 and e4m3 as the device rounds them: to nearest, ties to even; written for clarity.
namespace simt {

inline float FromBf16(uint16_t x) { return std::bit_cast<float>(static_cast<uint32_t>(x) << 16); }

inline uint16_t ToBf16(float x) {
  if (std::isnan(x)) return 0x7fff;
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  return static_cast<uint16_t>((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

inline float FromF16(uint16_t x) {
  const uint32_t sign = static_cast<uint32_t>(x & 0x8000) << 16;
  const uint32_t magnitude = x & 0x7fff;
  if (magnitude >= 0x7c00) {
    return std::bit_cast<float>(sign | 0x7f800000 | (magnitude & 0x3ff) << 13);
  }
  if (magnitude < 0x400) {
    const float value = static_cast<float>(magnitude) * 0x1p-24f;
    return sign != 0 ? -value : value;
  }
  return std::bit_cast<float>(sign | ((magnitude << 13) + (112u << 23)));
}

inline uint16_t ToF16(float x) {
  if (std::isnan(x)) return 0x7fff;
  const uint32_t bits = std::bit_cast<uint32_t>(x);
  const uint16_t sign = static_cast<uint16_t>(bits >> 16 & 0x8000);
  const uint32_t magnitude = bits & 0x7fffffff;
  if (magnitude >= 0x477ff000) return sign | 0x7c00;  // 65520 and more
  if (magnitude < 0x38800000) {                       // below 2^-14: multiples of 2^-24
    return sign | static_cast<uint16_t>(std::nearbyint(std::fabs(x) * 0x1p24f));
  }
  return sign |
         static_cast<uint16_t>((magnitude - (112u << 23) + 0xfff + (magnitude >> 13 & 1)) >> 13);
}

inline float FromE4m3(uint8_t x) {
  const uint32_t sign = static_cast<uint32_t>(x & 0x80) << 24;
  const uint32_t magnitude = x & 0x7f;
  if (magnitude == 0x7f) return std::bit_cast<float>(0x7fffffffu);
  if (magnitude < 8) {
    const float value = static_cast<float>(magnitude) * 0x1p-9f;
    return sign != 0 ? -value : value;
  }
  return std::bit_cast<float>(sign | ((magnitude << 20) + (120u << 23)));
}

// Beyond 448 it saturates; NaN is 0x7f.
inline uint8_t ToE4m3(float x) {
  if (std::isnan(x)) return 0x7f;
  const uint8_t sign = std::signbit(x) ? 0x80 : 0;
  const float magnitude = std::fabs(x);
  if (magnitude >= 448.0f) return sign | 0x7e;
  if (magnitude < 0x1p-6f) return sign | static_cast<uint8_t>(std::nearbyint(magnitude * 512.0f));
  const uint32_t bits = std::bit_cast<uint32_t>(magnitude);
  return sign | static_cast<uint8_t>(((bits + 0x7ffff + (bits >> 20 & 1)) >> 20) - (120u << 3));
}

}  // namespace simt
