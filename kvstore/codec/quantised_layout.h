#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "kvstore/codec/extent_rows.h"
#include "kvstore/codec/extent_shape.h"
#include "kvstore/codec/kv_codec.h"
#include "kvstore/codec/quantised_bits.h"

namespace tandem::codec {

// The header at the beginning of a quantised frame's payload, byte for byte. Index 0 is K, 1 is V.
struct QuantisedHeader {
  uint8_t version = 1;
  uint8_t zero = 0;
  uint8_t bits[2] = {};
  uint8_t low_bits[2] = {};  // low bits of a rank, stored as masks; see CodePlanes
  uint16_t exact_front = 0;  // tokens at the front that are not rounded
  uint16_t exact_back = 0;

  int32_t exact_tokens() const { return exact_front + exact_back; }
};
static_assert(sizeof(QuantisedHeader) == 10);

// The header for an extent with `bits` at `place`; low_bits are not set yet.
QuantisedHeader QuantisedHeaderOf(const ExtentShape& shape, const ExtentPlace& place,
                                  QuantisedBits bits);
// Reads the header of `payload`. Nothing when no extent of `shape` has a payload that begins so.
std::optional<QuantisedHeader> ParseQuantisedHeader(const ExtentShape& shape,
                                                    std::span<const std::byte> payload);

// How the codes of one side (K or V) are written. A code has `bits`, and its zigzag rank is at most
// 2^bits - 2. The low bits of a rank are stored as masks, one bit per channel. The rest above them,
// at most kMostUnary, is unary: which channels have a rest of at least 1, which of those have at
// least 2, and so on. With low_bits == bits there is no rest.
struct CodePlanes {
  static constexpr int kMostUnary = 7;

  int bits;
  int low_bits;

  int most_unary() const { return ((1 << bits) - 2) >> low_bits; }
  // The number of masks of a group: one for each low bit, and one for the channels that have a rest
  // unless all bits are low.
  size_t masks() const {
    return static_cast<size_t>(low_bits) + static_cast<size_t>(low_bits < bits ? 1 : 0);
  }
};
inline CodePlanes PlanesOf(const QuantisedHeader& header, int32_t side) {
  return {header.bits[side], header.low_bits[side]};
}

// The size of the next group of channels when a head has `channels_left` more: the largest power of
// two that is not more, and at most kRowLanes.
inline size_t GroupLanes(size_t channels_left) {
  return std::min(kRowLanes, std::bit_floor(channels_left));
}

// Neighbouring channels of one token in one head that share one scale.
struct QuantisedGroup {
  int32_t side = 0;   // 0 K, 1 V
  size_t raw_at = 0;  // bytes from the beginning of the extent
  size_t lanes = 0;   // 8, 16, 32 or 64
};

// Where the parts of a quantised payload lie. They are in this order behind the header: exact
// tokens, scales, exact groups, masks, stream.
struct QuantisedSizes {
  size_t exact_tokens = 0;  // bytes of the exact tokens
  size_t groups = 0;        // number of groups, each with a scale

  size_t ScalesAt() const { return sizeof(QuantisedHeader) + exact_tokens; }
  size_t ExactGroupsAt() const { return ScalesAt() + groups * sizeof(uint16_t); }
};
QuantisedSizes QuantisedSizesOf(const ExtentShape& shape, const QuantisedHeader& header);
// The groups of a payload that are kept as they are, separately for K (0) and V (1).
struct ExactGroups {
  size_t groups[2] = {};
  size_t bytes[2] = {};
};
// The part of K in a quantised payload whose stream of bits has `key_bits` bits of K.
KeyBytes QuantisedKeys(const ExtentShape& shape, const QuantisedHeader& header,
                       const ExactGroups& exact, size_t key_bits);
// The size of the masks of all groups in bytes.
size_t QuantisedMaskBytes(const ExtentShape& shape, const QuantisedHeader& header);

// Calls `function(raw_at, bytes)` for the exact tokens at the front and at the end of each head of
// K and V.
template <typename Function>
void ForEachExactRun(const ExtentShape& shape, const QuantisedHeader& header, Function function) {
  const auto token = static_cast<size_t>(shape.head_dim * SizeOf(shape.dtype));
  const auto tokens = static_cast<size_t>(shape.tokens);
  for (size_t head = 0; head < 2 * static_cast<size_t>(shape.num_kv_heads); ++head) {
    const size_t at = head * tokens * token;
    function(at, header.exact_front * token);
    function(at + (tokens - header.exact_back) * token, header.exact_back * token);
  }
}

// Calls `function` for each group of the tokens that are not exact, in the order of the extent,
// until one returns false. True when none did.
template <typename Function>
bool ForEachGroup(const ExtentShape& shape, const QuantisedHeader& header, Function function) {
  const auto element = static_cast<size_t>(SizeOf(shape.dtype));
  const auto head_dim = static_cast<size_t>(shape.head_dim);
  const size_t token = head_dim * element;
  size_t at = 0;
  for (int32_t head = 0; head < 2 * shape.num_kv_heads; ++head) {
    const int32_t side = head < shape.num_kv_heads ? 0 : 1;
    at += header.exact_front * token;
    for (int32_t i = header.exact_tokens(); i < shape.tokens; ++i) {
      for (size_t left = head_dim; left > 0;) {
        const size_t lanes = GroupLanes(left);
        if (!function(QuantisedGroup{side, at, lanes})) return false;
        at += lanes * element;
        left -= lanes;
      }
    }
    at += header.exact_back * token;
  }
  return true;
}

}  // namespace tandem::codec
