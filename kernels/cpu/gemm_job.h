#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/panel.h"
#include "kernels/op_args.h"

// What one thread is handed of a matrix product, and the memory that it works in.

namespace tandem::cpu {

// Rows per group of packed activations, groups per register tile.
inline constexpr int kGroupRows = 4;
inline constexpr int kTileGroups = 3;
inline constexpr int kTileRows = kGroupRows * kTileGroups;

// Rows of one block, and inputs of one block when its rows take several tiles: 16 KiB of widened
// weights and 6 KiB of activations per tile, which fit into L1 together.
inline constexpr int64_t kBlockRows = 256;
inline constexpr int64_t kBlockInputs = 128;

// All inputs at once when one tile holds the rows: then nothing is read twice.
constexpr int64_t InputsPerBlock(int64_t num_rows, int64_t k) {
  return num_rows <= kTileRows ? k : kBlockInputs;
}

// A block of activations times all panels of a weight.
struct GemmJob {
  // In blocks of InputsPerBlock inputs, of these in groups of kGroupRows rows (the last may have
  // less), each [input][row]: a tile reads one stream.
  const float* x = nullptr;
  int64_t num_rows = 0;  // 1 to kBlockRows
  PackedMatrix weight;
  const float* bias = nullptr;  // [n], or null
  float* out = nullptr;         // [num_rows, n], rows out_stride apart
  int64_t out_stride = 0;
  GemmOutput output = GemmOutput::kOverwrite;
};

struct alignas(64) GemmScratch {
  float weights[kBlockInputs * kPanelOutputs];  // [input][output]
  float sums[kBlockRows * kPanelOutputs];       // [row][output]
};

// Up to kTileRows rows times the inputs of one block times one panel.
struct TileArgs {
  const float* x = nullptr;            // the tile's first group
  const std::byte* weights = nullptr;  // the panel at the block's first input
  int64_t num_inputs = 0;
  float* sums = nullptr;             // [row][kPanelOutputs]
  bool first = false;                // sums start at zero; else they go on where they were
  const std::byte* fetch = nullptr;  // fetched into L2 meanwhile,
  int64_t fetch_step = 0;            // so many bytes per two inputs
};

}  // namespace tandem::cpu
