#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "kvstore/codec/codec_tables.h"
#include "kvstore/codec/extent_rows.h"
#include "kvstore/codec/extent_shape.h"

namespace tandem::codec {

// How the values of one row are rounded and written, where a row is up to kRowLanes neighbouring
// channels of one token in one head. A value becomes the integer nearest to (value - centre) / step.
// Its rank (0, -1, 1, -2, 2 have the ranks 0, 1, 2, 3, 4) is written as low bits, as many as its
// channel has, and the rest above them in unary.
struct alignas(64) RoundedRow {
  static constexpr int32_t kMostLowBits = 8;
  // A row with a larger rest is kept as it is: it would hardly be smaller.
  static constexpr uint8_t kMostRest = 47;

  float centres[kRowLanes];
  uint32_t low_bits[kRowLanes];
  uint64_t planes[kMostLowBits];  // planes[i]: the channels that have more than i low bits
  int32_t num_planes = 0;         // as many as the channel with the most low bits has
  float step = 0;
  float inverse_step = 0;
};

// The rows of all layers of a model.
class RoundedRows {
 public:
  // `step`: see NewRoundedCodec.
  RoundedRows(const CodecTables& tables, float step);

  // The rows of a head of K (side 0) or V (side 1), one for every kRowLanes of its channels.
  const RoundedRow* Of(int32_t layer, int32_t side, int32_t head) const {
    const int32_t index = (2 * layer + side) * num_kv_heads_ + head;
    return &rows_[static_cast<size_t>(index) * rows_of_head_];
  }

 private:
  const int32_t num_kv_heads_;
  const size_t rows_of_head_;
  std::vector<RoundedRow> rows_;  // [layer][K|V][kv_head][row]
};

// An extent, and how its rows are rounded.
struct RoundedExtent {
  const ExtentShape& shape;
  int32_t layer;
  const RoundedRows& rows;
};

}  // namespace tandem::codec
