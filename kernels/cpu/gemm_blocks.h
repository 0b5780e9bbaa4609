#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "kernels/cpu/panel.h"
#include "kernels/op_args.h"

// How a matrix product is cut into blocks of rows, and these into ranges of panels for the threads.

namespace tandem::cpu {

// Rows per group of packed activations.
inline constexpr int kGroupRows = 4;
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

// The product of num_rows rows of `args` from first_row on.
inline BlockProduct ProductOfRows(const GemmArgs& args, int64_t first_row, int64_t num_rows) {
  return {.num_rows = num_rows,
          .weight = args.weight,
          .bias = static_cast<const float*>(args.bias.data),
          .out = args.out.Row<float>(first_row),
          .out_stride = args.out.row_stride,
          .output = args.output};
}

// Rows of each block but the last: as even as whole groups allow, and so many that their packed
// activations take this much of the L2 cache, where each panel finds them again.
constexpr int64_t RowsPerBlock(int64_t num_rows, int64_t k) {
  constexpr int64_t kActivationBytes = int64_t{1} << 20;
  constexpr int64_t kFewestRows = 48;  // fewer take less time than the weights
  const auto row_bytes = static_cast<int64_t>(sizeof(float)) * std::max<int64_t>(k, 1);
  const int64_t fitting = kActivationBytes / row_bytes;
  const int64_t most = std::clamp(fitting, kFewestRows, kBlockRows) / kGroupRows * kGroupRows;
  const int64_t num_blocks = (num_rows + most - 1) / most;
  const int64_t rows = (num_rows + num_blocks - 1) / num_blocks;
  return (rows + kGroupRows - 1) / kGroupRows * kGroupRows;
}

// Ranges of panels to hand out: so long that a thread's stream of weights is seldom interrupted, so
// many that a thread which the machine holds up is not waited for, and equally many per thread.
constexpr int64_t NumRanges(const BlockProduct& block, int num_threads) {
  constexpr int64_t kRangeBytes = int64_t{1} << 20;
  constexpr int64_t kRowsPerStream = 10;  // so many take as much time as the weights
  const int64_t num_panels = NumPanels(block.weight.n);
  const int64_t panel_bytes = PanelBytes(block.weight.format, block.weight.k);
  const int64_t cost =
      num_panels * panel_bytes * std::max(block.num_rows, kRowsPerStream) / kRowsPerStream;
  const int64_t rounds = std::max<int64_t>(1, cost / kRangeBytes / num_threads);
  return std::min(rounds * num_threads, num_panels);
}

}  // namespace tandem::cpu
