#pragma once

#include <cstddef>
#include <cstdint>

#include "base/dtype.h"
#include "kernels/cpu/pack.h"

// What one thread is handed of a matrix product, and the memory that it works in.

namespace tandem::cpu {

// Rows per group of packed activations, groups per register tile.
inline constexpr int kGroupRows = 4;
inline constexpr int kTileGroups = 3;
inline constexpr int kTileRows = kGroupRows * kTileGroups;

// Rows of one block and inputs of one block: 32 KiB of widened weights, which stay in L1 while the
// rows of the block pass over them.
inline constexpr int64_t kBlockRows = 256;
inline constexpr int64_t kBlockInputs = 256;

// A block of activations times all panels of a weight.
struct GemmJob {
  const float* x =
      nullptr;           // in groups of kGroupRows rows (the last may have less), each [k][rows]
  int64_t num_rows = 0;  // 1 to kBlockRows
  PackedMatrix weight;
  const float* bias = nullptr;  // [n], or null
  float* out = nullptr;         // [num_rows, n], rows out_stride apart
  int64_t out_stride = 0;
  bool accumulate = false;
};

struct alignas(64) GemmScratch {
  float weights[kBlockInputs * kPanelOutputs];  // [input][output]
  float sums[kBlockRows * kPanelOutputs];       // [row][output]
};

// Up to kTileRows rows times the inputs of one block times one panel.
struct TileArgs {
  const float* x = nullptr;            // the tile's first group
  int64_t group_stride = 0;            // from one group to the next
  int64_t first_input = 0;             // where the block begins in each group
  const std::byte* weights = nullptr;  // the panel at the block's first input
  int64_t num_inputs = 0;              // even, but for the last block
  float* sums = nullptr;               // [rows][kPanelOutputs]
  bool first = false;                  // sums start at zero; else they go on where they were
  const std::byte* ahead = nullptr;    // what to fetch meanwhile, ahead_step bytes per two inputs
  int64_t ahead_step = 0;
};

}  // namespace tandem::cpu
