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

// What the payload of a quantised frame begins with, in its order. Index 0 is K, 1 is V.
struct QuantisedHeader {
  uint8_t version = 1;
  uint8_t zero = 0;
  uint8_t bits[2] = {};
  uint8_t low_bits[2] = {};  // of a rank that are masks of their own, see CodePlanes
  uint16_t exact_front = 0;  // tokens
  uint16_t exact_back = 0;

  int32_t exact_tokens() const { return exact_front + exact_back; }
};
static_assert(sizeof(QuantisedHeader) == 10);

// The header for an extent with `bits` at `place`; low_bits are not known yet.
QuantisedHeader QuantisedHeaderOf(const ExtentShape& shape, const ExtentPlace& place,
                                  QuantisedBits bits);
// Nothing when no extent of that shape has a payload that begins so.
std::optional<QuantisedHeader> ParseQuantisedHeader(const ExtentShape& shape,
                                                    std::span<const std::byte> payload);

// How the codes of one side are written. A code has `bits`, and its zigzag rank is at most 2^bits - 2.
// The low bits of a rank are masks; the rest, at most kMostUnary, is unary: who has at least 1, of these
// who has at least 2, and so on. With all bits low there is no rest.
struct CodePlanes {
  static constexpr int kMostUnary = 7;

  int bits;
  int low_bits;

  int most_unary() const { return ((1 << bits) - 2) >> low_bits; }
  // Masks of a known size: the low bits, and who has a rest.
  size_t masks() const {
    return static_cast<size_t>(low_bits) + static_cast<size_t>(low_bits < bits ? 1 : 0);
  }
};
inline CodePlanes PlanesOf(const QuantisedHeader& header, int32_t side) {
  return {header.bits[side], header.low_bits[side]};
}

// The most neighbouring channels that are a group: what is left of a head in powers of two.
inline size_t GroupLanes(size_t channels_left) {
  return std::min(kRowLanes, std::bit_floor(channels_left));
}

// Channels of one token in one head which have one scale.
struct QuantisedGroup {
  int32_t side = 0;   // 0 K, 1 V
  size_t raw_at = 0;  // bytes from the beginning of the extent
  size_t lanes = 0;   // 8, 16, 32 or 64
};

// Where the parts of a payload lie. Behind the header: exact tokens, scales, exact groups, masks, stream.
struct QuantisedSizes {
  size_t exact_tokens = 0;  // bytes
  size_t groups = 0;        // each has a scale

  size_t ScalesAt() const { return sizeof(QuantisedHeader) + exact_tokens; }
  size_t ExactGroupsAt() const { return ScalesAt() + groups * sizeof(uint16_t); }
};
QuantisedSizes QuantisedSizesOf(const ExtentShape& shape, const QuantisedHeader& header);
// The groups of a payload that are kept as they are, by side.
struct ExactGroups {
  size_t groups[2] = {};
  size_t bytes[2] = {};
};
// The part of K in a payload whose stream has `key_bits` of K.
KeyBytes QuantisedKeys(const ExtentShape& shape, const QuantisedHeader& header,
                       const ExactGroups& exact, size_t key_bits);
// Bytes of the masks of all groups.
size_t QuantisedMaskBytes(const ExtentShape& shape, const QuantisedHeader& header);

// Calls `function(raw_at, bytes)` for the tokens at the front and at the end of each head.
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

// Calls `function` for each group of the other tokens in the order of the extent, until one returns
// false. True when none did.
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
