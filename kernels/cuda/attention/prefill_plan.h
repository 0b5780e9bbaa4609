#pragma once

#include <cstdint>
#include <vector>

#include "kernels/op_args.h"

// How a prefill step is cut into the pieces that thread blocks compute. Rows are packed: packed row
// r of a sequence and a KV head is query token r / G under query head r % G of the head's group, so
// that the G heads that share K and V share the tile that reads them. Plain C++, no device.
namespace tandem::cuda {

// A tile of packed rows and the part of the context that one thread block reads for it.
struct PrefillTile {
  int32_t seq;
  int32_t kv_head;
  int32_t row_begin;  // packed rows [row_begin, row_end)
  int32_t row_end;
  int32_t key_begin;  // positions [key_begin, key_end), key_begin a multiple of tile_keys
  int32_t key_end;
  int32_t partial;       // index of its partial result; -1: the tile is whole and writes the output
  int32_t num_partials;  // on the first piece of a split tile: its number of partial results, whose
                         // indices are consecutive; 0 on all other tiles
};

// What the planner knows of the kernel that will run and of the device.
struct PrefillTiling {
  int32_t tile_rows = 0;
  int32_t tile_keys = 0;
  int32_t concurrent_tiles = 0;  // thread blocks that the device runs at once
};

// The most partial results that a plan has: splitting ends with two pieces for each block that runs
// at once.
int32_t MaxPrefillPartials(const PrefillTiling& tiling, SplitMode splits);

// Fills `tiles` (cleared first; its capacity is kept, so that in a steady state nothing is
// allocated) and returns the number of partial results. Reads the host side of query_starts and
// context_lens, and the heads, window and splits of `args`. The most expensive tiles come first:
// blocks start in this order, so that each takes the longest that is left. Each visible (row, key)
// pair is in exactly one tile. SplitMode::kFixed cuts no context.
int32_t PlanPrefillTiles(const AttentionArgs& args, const PrefillTiling& tiling,
                         std::vector<PrefillTile>& tiles);

}  // namespace tandem::cuda
