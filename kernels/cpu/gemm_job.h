#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/gemm_blocks.h"

// What one thread is handed of a matrix product whose activations are floats, and the memory that
// it works in.

namespace tandem::cpu {

// Groups of rows per register tile at most.
inline constexpr int kTileGroups = 3;
inline constexpr int kTileRows = kGroupRows * kTileGroups;

// How many inputs are multiplied before the next ones: all of them for few rows, so that nothing is
// read twice. Else a block's weights stay in L1 from vector to vector of a tile and from tile to
// tile: 16 KiB of widened ones and 6 KiB of activations per tile.
constexpr int64_t InputsPerBlock(int64_t num_rows, int64_t k) {
  return num_rows <= kGroupRows ? k : kBlockInputs;
}

// A block of activations times all panels of a weight.
struct GemmJob : BlockProduct {
  // Whether x is rounded to bf16: two inputs are one word of x then, and "input" below means such a
  // word.
  bool has_pairs = false;
  // The activations, packed in blocks of InputsPerBlock inputs, of these in groups of kGroupRows
  // rows (the last may have less), each [input][row]: a tile reads one stream.
  const float* x = nullptr;
};

struct alignas(64) GemmScratch {
  float weights[kBlockInputs * kPanelOutputs];  // a widened block, [input][output]
  float sums[kBlockRows * kPanelOutputs];       // [row][output]
};

// What a register tile multiplies: up to kTileRows rows by one panel, at the inputs of one block.
struct TileArgs {
  const float* x = nullptr;  // the tile's first group
  const std::byte* weights =
      nullptr;  // the panel at the block's first input, or what it was widened to
  const std::byte* groups = nullptr;  // of codes: the panel there, not widened
  int64_t num_inputs = 0;
  float* sums = nullptr;             // [row][kPanelOutputs]
  bool first = false;                // sums start at zero; else they go on where they were
  const std::byte* fetch = nullptr;  // where the tile fetches memory into L2 meanwhile
  int64_t fetch_step = 0;            // bytes that are fetched per two inputs
};

}  // namespace tandem::cpu
