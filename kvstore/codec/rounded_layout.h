#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>

#include "kvstore/codec/extent_parts.h"
#include "kvstore/codec/extent_rows.h"
#include "kvstore/codec/extent_shape.h"
#include "kvstore/codec/kv_codec.h"

namespace tandem::codec {

// The header at the beginning of a rounded payload, byte for byte.
struct RoundedHeader {
  uint8_t version = 1;
  uint8_t zero = 0;
  uint16_t exact_front = 0;  // tokens at the front that are not rounded
  uint32_t key_bits = 0;     // bits of K in the stream
};
static_assert(sizeof(RoundedHeader) == 8);

// The header for an extent at `place`; key_bits is not set yet.
RoundedHeader RoundedHeaderOf(const ExtentShape& shape, const ExtentPlace& place);
// Reads the header of `payload`. Nothing when no extent of `shape` has a payload that begins so.
std::optional<RoundedHeader> ParseRoundedHeader(const ExtentShape& shape,
                                                std::span<const std::byte> payload);

// Where the parts of a rounded payload lie. They are in this order behind the header: exact tokens,
// flags (one bit for each row that is not of an exact token: whether it is kept as it is), these
// rows, stream.
struct RoundedParts {
  size_t exact_tokens = 0;  // bytes of the exact tokens of all heads of K and V
  size_t rows = 0;          // rows of the other tokens, of K and V together

  size_t FlagsAt() const { return sizeof(RoundedHeader) + exact_tokens; }
  size_t ExactRowsAt() const { return FlagsAt() + (rows + 7) / 8; }
};
RoundedParts RoundedPartsOf(const ExtentShape& shape, const RoundedHeader& header);

// A row of an extent, as far as its place in the payload goes.
struct RowPlace {
  int32_t side = 0;  // 0 K, 1 V
  int32_t head = 0;
  size_t row = 0;     // its number within the head
  size_t raw_at = 0;  // bytes from the beginning of the extent
  size_t lanes = 0;   // channels; a multiple of 8
};

// Calls `function(raw_at, bytes)` for the exact tokens of each head of K and V.
template <typename Function>
void ForEachExactRun(const ExtentShape& shape, const RoundedHeader& header, Function function) {
  const auto token = static_cast<size_t>(shape.head_dim * SizeOf(shape.dtype));
  for (size_t head = 0; head < 2 * static_cast<size_t>(shape.num_kv_heads); ++head) {
    function(head * static_cast<size_t>(shape.tokens) * token, header.exact_front * token);
  }
}

// Calls `function` for each row of the tokens that are not exact, in the order of the extent, until
// one returns false. True when none did.
template <typename Function>
bool ForEachRoundedRow(const ExtentShape& shape, const RoundedHeader& header, Function function) {
  const auto element = static_cast<size_t>(SizeOf(shape.dtype));
  const auto head_dim = static_cast<size_t>(shape.head_dim);
  RowPlace place;
  for (place.side = 0; place.side < 2; ++place.side) {
    for (place.head = 0; place.head < shape.num_kv_heads; ++place.head) {
      place.raw_at += header.exact_front * head_dim * element;
      for (int32_t token = header.exact_front; token < shape.tokens; ++token) {
        place.row = 0;
        for (size_t left = head_dim; left > 0; left -= place.lanes, ++place.row) {
          place.lanes = std::min(left, kRowLanes);
          if (!function(place)) return false;
          place.raw_at += place.lanes * element;
        }
      }
    }
  }
  return true;
}

// The rows of a payload that are kept as they are, of K (0) and V (1).
struct ExactRows {
  size_t rows[2] = {};
  size_t bytes[2] = {};

  void Add(const RowPlace& place, DType dtype) {
    ++rows[place.side];
    bytes[place.side] += place.lanes * static_cast<size_t>(SizeOf(dtype));
  }
};
// The exact rows by the flags of a payload, which has bytes for all flags.
ExactRows ExactRowsOf(const ExtentShape& shape, const RoundedHeader& header,
                      std::span<const std::byte> payload);
// The part of K in a payload.
KeyBytes RoundedKeys(const ExtentShape& shape, const RoundedHeader& header, const ExactRows& exact);

}  // namespace tandem::codec
