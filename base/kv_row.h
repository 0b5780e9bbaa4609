#pragma once

#include <cstdint>

#include "base/dtype.h"

// How many bytes KV takes in a pool. A row is the K or the V of one token in one KV head.
//
// A row of numbers is [head_dim] of the pool's type. A row of quantised KV is made of groups of 64
// channels, each by itself: the channels are rotated into one another (a Hadamard transform), divided
// by a scale and rounded to integers of `bits` bits, from -(2^(bits-1) - 1) to 2^(bits-1) - 1. A group
// is its integers plus 2^(bits-1), without a gap, and then the scale as an f16, NaN where the channels
// hold an infinity or a NaN, or are too large for any scale. The integers, channel i of 0 to 63:
//
//   8 bits:  byte i
//   4 to 6:  the low four bits, channel i < 32 in the low half of byte i, channel i + 32 in its high
//            half; then for each further bit a mask of 64, channel i as bit i % 8 of byte i / 8
//   3 bits:  three such masks, the lowest bit first

namespace tandem {

enum class KvSide : uint8_t { kKeys = 0, kValues = 1 };

inline constexpr int32_t kKvGroupChannels = 64;

// Bits of an integer of a quantised type; 0 of other types.
constexpr int32_t KvBits(DType dtype, KvSide side) {
  const bool keys = side == KvSide::kKeys;
  switch (dtype) {
    case DType::kK8V8:
      return 8;
    case DType::kK6V5:
      return keys ? 6 : 5;
    case DType::kK4V3:
      return keys ? 4 : 3;
    default:
      return 0;
  }
}

// A group of 64 channels: its integers and its scale.
constexpr int64_t KvGroupBytes(int32_t bits) { return bits * (kKvGroupChannels / 8) + 2; }

// head_dim is a multiple of kKvGroupChannels when the type is quantised.
constexpr int64_t KvRowBytes(DType dtype, KvSide side, int64_t head_dim) {
  if (!IsQuantisedKv(dtype)) return head_dim * SizeOf(dtype);
  return head_dim / kKvGroupChannels * KvGroupBytes(KvBits(dtype, side));
}

// K and V of one token in one head.
constexpr int64_t KvHeadBytes(DType dtype, int64_t head_dim) {
  return KvRowBytes(dtype, KvSide::kKeys, head_dim) + KvRowBytes(dtype, KvSide::kValues, head_dim);
}

}  // namespace tandem
