#pragma once

#include <cstdint>
#include <string_view>

#include "base/dtype.h"

// How many bytes KV takes in a pool. A row is the K or the V of one token in one KV head.
//
// A row of numbers is [head_dim] of the pool's type. A row of quantised KV is made of groups of 64
// channels, each by itself: the channels are rotated into one another (a Hadamard transform), divided
// by a scale and rounded to integers of `bits` bits, from -(2^(bits-1) - 1) to 2^(bits-1) - 1. A group
// is its integers plus 2^(bits-1), without a gap, and then the scale as an f16, NaN where the channels
// hold an infinity or a NaN, or are too large for any scale.
//
// The bits of an integer are cut into parts of 8, 4, 2 and 1 bits, as `bits` is a sum of these (6 is
// 4 + 2), with the lowest bits in the first part. A part of p bits takes 8p bytes: channel i of 0 to 63
// has its bits in byte i % 8p, from bit i / 8p * p on.

namespace tandem {

enum class KvSide : uint8_t { kKeys = 0, kValues = 1 };

inline constexpr int32_t kKvGroupChannels = 64;

// The types that KV may be kept in, for messages.
inline constexpr std::string_view kKvTypeNames = "bf16, f16, f8e4m3, f32, k8v8, k6v5 or k4v3";
constexpr bool IsKvType(DType dtype) {
  return dtype != DType::kI32 && dtype != DType::kI64 && dtype != DType::kI8;
}

// The bits of an integer of a quantised type; 0 for other types.
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

// The bytes of a group of 64 channels: its integers and its scale.
constexpr int64_t KvGroupBytes(int32_t bits) { return bits * (kKvGroupChannels / 8) + 2; }

// The bytes of the K or the V of one token in one KV head. head_dim is a multiple of
// kKvGroupChannels when the type is quantised.
constexpr int64_t KvRowBytes(DType dtype, KvSide side, int64_t head_dim) {
  if (!IsQuantisedKv(dtype)) return head_dim * SizeOf(dtype);
  return head_dim / kKvGroupChannels * KvGroupBytes(KvBits(dtype, side));
}

// The bytes of K and V of one token in one KV head.
constexpr int64_t KvHeadBytes(DType dtype, int64_t head_dim) {
  return KvRowBytes(dtype, KvSide::kKeys, head_dim) + KvRowBytes(dtype, KvSide::kValues, head_dim);
}

}  // namespace tandem
