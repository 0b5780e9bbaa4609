#include "kvstore/codec/rounded_rows.h"

#include <algorithm>

namespace tandem::codec {
namespace {

// The steps, in spreads of the layer, that a layer's weight may lead to. A finer step has too many
// ranks for the masks of a row; with a coarser one hardly a bit per value is left to save.
constexpr float kLeastStep = 0x1p-7f;
constexpr float kMostStep = 1.4f;
// Taken for the spread of a side whose values are all alike, so that the inverse is finite.
constexpr float kLeastSpread = 0x1p-60f;

// The number of low bits with which normal values of this deviation (in steps) take the fewest bits:
// from 1.32 on one takes fewer than none, and each doubling of the deviation adds another.
uint32_t LowBits(float deviation) {
  uint32_t bits = 0;
  for (float bound = 1.32f; deviation >= bound && bits < RoundedRow::kMostLowBits; bound *= 2) {
    ++bits;
  }
  return bits;
}

RoundedRow RowOf(const CodecTables::Side& side, size_t first, size_t lanes, float step) {
  RoundedRow row = {};
  const float relative = std::clamp(step * side.weight, kLeastStep, kMostStep);
  row.step = std::max(side.spread, kLeastSpread) * relative;
  row.inverse_step = 1 / row.step;
  for (size_t lane = 0; lane < lanes; ++lane) {
    row.centres[lane] = FloatOfBFloat(side.centres[first + lane]);
    row.low_bits[lane] = LowBits(FloatOfBFloat(side.spreads[first + lane]) / row.step);
    row.num_planes = std::max(row.num_planes, static_cast<int32_t>(row.low_bits[lane]));
    for (uint32_t bit = 0; bit < row.low_bits[lane]; ++bit) {
      row.planes[bit] |= uint64_t{1} << lane;
    }
  }
  return row;
}

}  // namespace

RoundedRows::RoundedRows(const CodecTables& tables, float step)
    : num_kv_heads_(tables.shape().num_kv_heads),
      rows_of_head_((static_cast<size_t>(tables.shape().head_dim) + kRowLanes - 1) / kRowLanes) {
  const auto head_dim = static_cast<size_t>(tables.shape().head_dim);
  for (int32_t layer = 0; layer < tables.num_layers(); ++layer) {
    for (const int32_t side : {0, 1}) {
      const CodecTables::Side& of_side = tables.Of(layer, side);
      for (size_t head = 0; head < static_cast<size_t>(num_kv_heads_); ++head) {
        for (size_t channel = 0; channel < head_dim; channel += kRowLanes) {
          const size_t lanes = std::min(kRowLanes, head_dim - channel);
          rows_.push_back(RowOf(of_side, head * head_dim + channel, lanes, step));
        }
      }
    }
  }
}

}  // namespace tandem::codec
