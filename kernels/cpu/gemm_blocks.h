#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/panel.h"
#include "kernels/op_args.h"

// How a matrix product is cut into blocks of rows, and these into ranges of panels for the threads.

namespace tandem::cpu {

// The most rows of one block.
inline constexpr int64_t kBlockRows = 256;
// Inputs of one block when its rows take several tiles: its weights stay in L1 from tile to tile.
inline constexpr int64_t kBlockInputs = 128;

// A block of rows times all panels of a weight, but for its activations.
struct BlockProduct {
  int64_t num_rows = 0;  // 1 to kBlockRows
  PackedMatrix weight;
  const float* bias = nullptr;  // [n], or null
  float* out = nullptr;         // [num_rows, n], rows out_stride apart
  int64_t out_stride = 0;
  GemmOutput output = GemmOutput::kOverwrite;
};

// That of the rows from first_row on.
inline BlockProduct ProductOfRows(const GemmArgs& args, int64_t first_row, int64_t num_rows) {
  return {.num_rows = num_rows,
          .weight = args.weight,
          .bias = static_cast<const float*>(args.bias.data),
          .out = args.out.Row<float>(first_row),
          .out_stride = args.out.row_stride,
          .output = args.output};
}

// Rows of each block but the last: as even as whole `unit`s allow, and so many that their packed
// activations take this much of the L2 cache, where each panel finds them again.
constexpr int64_t RowsPerBlock(int64_t num_rows, int64_t row_bytes, int64_t unit) {
  constexpr int64_t kActivationBytes = int64_t{1} << 20;
  constexpr int64_t kFewestRows = 48;  // beside which the weights' own stream takes little time
  const int64_t fitting = kActivationBytes / std::max<int64_t>(row_bytes, 1);
  const int64_t most = std::clamp(fitting, kFewestRows, kBlockRows) / unit * unit;
  const int64_t num_blocks = (num_rows + most - 1) / most;
  const int64_t rows = (num_rows + num_blocks - 1) / num_blocks;
  return (rows + unit - 1) / unit * unit;
}

// Ranges of panels to hand out: so long that a thread's stream of weights is seldom interrupted, so
// many that a thread which the machine holds up is not waited for, and equally many per thread.
// rows_per_stream: as many rows cost as much time as the weights' stream.
constexpr int64_t NumRanges(const BlockProduct& block, int num_threads, int64_t rows_per_stream) {
  constexpr int64_t kRangeBytes = int64_t{1} << 20;
  const int64_t num_panels = NumPanels(block.weight.n);
  const int64_t panel_bytes = PanelBytes(block.weight.format, block.weight.k);
  const int64_t cost =
      num_panels * panel_bytes * std::max(block.num_rows, rows_per_stream) / rows_per_stream;
  const int64_t rounds = std::max<int64_t>(1, cost / kRangeBytes / num_threads);
  return std::min(rounds * num_threads, num_panels);
}

}  // namespace tandem::cpu
