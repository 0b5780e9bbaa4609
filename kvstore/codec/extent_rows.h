#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kvstore/codec/codec_tables.h"
#include "kvstore/codec/extent_shape.h"

namespace tandem::codec {

inline constexpr size_t kRowLanes = 64;

// The size in bytes of those parts of an extent's rows that do not depend on the KV;
// `of_row(lanes)` is their size in a row of so many channels.
template <typename RowBytes>
size_t FixedBytes(const ExtentShape& shape, RowBytes of_row) {
  const auto head_dim = static_cast<size_t>(shape.head_dim);
  const size_t vector = head_dim / kRowLanes * of_row(kRowLanes) +
                        (head_dim % kRowLanes == 0 ? 0 : of_row(head_dim % kRowLanes));
  return 2 * static_cast<size_t>(shape.num_kv_heads) * static_cast<size_t>(shape.tokens) * vector;
}

// Up to kRowLanes neighbouring channels of one token in one head: the unit that the codecs work on.
struct ExtentRow {
  size_t raw_at = 0;  // bytes from the beginning of the extent
  size_t lanes = 0;   // channels; a multiple of 8
  const CodecTables::Side* side = nullptr;
  const uint8_t* tops = nullptr;  // the tops of the row's channels, see CodecTables
};

// Calls `function` for each row of an extent in its order, until one returns false. True when none
// did.
template <typename Function>
bool ForEachRow(const ExtentShape& shape, int32_t layer, const CodecTables& tables,
                Function function) {
  const auto head_dim = static_cast<size_t>(shape.head_dim);
  const auto element = static_cast<size_t>(SizeOf(shape.dtype));
  size_t at = 0;
  for (int32_t side = 0; side < 2; ++side) {
    const CodecTables::Side& of_side = tables.Of(layer, side);
    for (int32_t head = 0; head < shape.num_kv_heads; ++head) {
      const uint8_t* const tops = of_side.tops.data() + static_cast<size_t>(head) * head_dim;
      for (int32_t token = 0; token < shape.tokens; ++token) {
        for (size_t channel = 0; channel < head_dim; channel += kRowLanes) {
          const size_t lanes = std::min(kRowLanes, head_dim - channel);
          if (!function(ExtentRow{at, lanes, &of_side, tops + channel})) return false;
          at += lanes * element;
        }
      }
    }
  }
  return true;
}

}  // namespace tandem::codec
