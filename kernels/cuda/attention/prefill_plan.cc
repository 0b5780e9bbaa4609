#include "kernels/cuda/attention/prefill_plan.h"

#include <algorithm>
#include <tuple>

namespace tandem::cuda {
namespace {

// Contexts are split where there are fewer tiles than this multiple of the blocks that run at once.
constexpr double kEnoughTiles = 1.5;
// The fewest keys of a piece of a context: what shorter pieces gain is lost in merging them.
constexpr int32_t kMinPieceKeys = 512;
// What a tile costs beside its keys, in keys: its queries are read and its result is written.
constexpr int32_t kTileKeys = 128;
// What merging the partial results of a step costs, in keys.
constexpr int32_t kMergeKeys = 512;
constexpr int32_t kMaxPieces = 32;

int32_t RoundUpDiv(int64_t a, int64_t b) { return static_cast<int32_t>((a + b - 1) / b); }

// Calls visit(tile) for the whole tiles of KV head 0; those of the other heads are the same.
template <class Visit>
void ForEachTile(const AttentionArgs& args, const PrefillTiling& tiling, Visit visit) {
  const auto group = static_cast<int32_t>(args.q.shape[1] / args.pool.num_kv_heads);
  for (size_t s = 0; s < args.context_lens.size(); ++s) {
    const int32_t q_len = args.query_starts[s + 1] - args.query_starts[s];
    const int32_t first_position = args.context_lens[s] - q_len;
    const int32_t num_rows = q_len * group;
    for (int32_t begin = 0; begin < num_rows; begin += tiling.tile_rows) {
      const int32_t end = std::min(begin + tiling.tile_rows, num_rows);
      const int32_t first_seen = first_position + begin / group + 1 - args.window;
      const int32_t key_begin = args.window > 0 ? std::max(first_seen, 0) : 0;
      visit(PrefillTile{.seq = static_cast<int32_t>(s),
                        .kv_head = 0,
                        .row_begin = begin,
                        .row_end = end,
                        .key_begin = key_begin / tiling.tile_keys * tiling.tile_keys,
                        .key_end = first_position + (end - 1) / group + 1,
                        .partial = -1,
                        .num_partials = 0});
    }
  }
}

int32_t KeyTiles(const PrefillTile& tile, const PrefillTiling& tiling) {
  return RoundUpDiv(tile.key_end - tile.key_begin, tiling.tile_keys);
}

// How much there is to compute before any tile is split into pieces.
struct Work {
  int64_t num_tiles = 0;  // tiles of queries, of all KV heads
  int64_t key_tiles = 0;  // tiles of keys that all of these read together
  int32_t longest = 0;    // tiles of keys of the tile of queries that reads most
};

Work WorkOf(const AttentionArgs& args, const PrefillTiling& tiling) {
  Work work;
  ForEachTile(args, tiling, [&](const PrefillTile& tile) {
    const int32_t key_tiles = KeyTiles(tile, tiling);
    work.num_tiles += args.pool.num_kv_heads;
    work.key_tiles += int64_t{key_tiles} * args.pool.num_kv_heads;
    work.longest = std::max(work.longest, key_tiles);
  });
  return work;
}

int64_t PiecesOf(const AttentionArgs& args, const PrefillTiling& tiling, int32_t piece) {
  int64_t pieces = 0;
  ForEachTile(args, tiling, [&](const PrefillTile& tile) {
    pieces += int64_t{RoundUpDiv(KeyTiles(tile, tiling), piece)} * args.pool.num_kv_heads;
  });
  return pieces;
}

// The length of pieces, in key tiles, with which the step ends earliest. Equal pieces run in waves,
// unequal ones end at worst one piece after the mean.
int32_t LongestPiece(const AttentionArgs& args, const PrefillTiling& tiling) {
  const Work work = WorkOf(args, tiling);
  const int64_t slots = tiling.concurrent_tiles;
  int32_t best = std::max(work.longest, 1);
  if (args.splits == SplitMode::kFixed ||
      static_cast<double>(work.num_tiles) >= kEnoughTiles * static_cast<double>(slots)) {
    return best;
  }
  int64_t best_keys = 0;
  for (int32_t cuts = 1; cuts <= kMaxPieces; ++cuts) {
    const int32_t piece = RoundUpDiv(work.longest, cuts);
    const int64_t pieces = PiecesOf(args, tiling, piece);
    if (cuts > 1 && (piece * tiling.tile_keys < kMinPieceKeys || pieces > 2 * slots)) break;
    const int64_t waves = RoundUpDiv(pieces, slots);
    const int64_t key_tiles = std::min(waves * piece, work.key_tiles / slots + piece);
    const int64_t keys =
        key_tiles * tiling.tile_keys + waves * kTileKeys + (cuts > 1 ? kMergeKeys : 0);
    if (cuts == 1 || keys < best_keys) {
      best = piece;
      best_keys = keys;
    }
  }
  return best;
}

// Appends the pieces of `whole`, whose lengths differ by at most one key tile. Returns the number
// of partial results including theirs, from `num_partials` before.
int32_t AppendPieces(const PrefillTile& whole, int32_t piece, const PrefillTiling& tiling,
                     int32_t num_partials, std::vector<PrefillTile>& tiles) {
  const int32_t key_tiles = KeyTiles(whole, tiling);
  const int32_t count = RoundUpDiv(key_tiles, piece);
  if (count == 1) {
    tiles.push_back(whole);
    return num_partials;
  }
  const auto cut = [&](int32_t i) {
    const auto tile = static_cast<int32_t>(int64_t{key_tiles} * i / count);
    return std::min(whole.key_begin + tile * tiling.tile_keys, whole.key_end);
  };
  for (int32_t i = 0; i < count; ++i) {
    PrefillTile part = whole;
    part.key_begin = cut(i);
    part.key_end = cut(i + 1);
    part.partial = num_partials + i;
    part.num_partials = i == 0 ? count : 0;
    tiles.push_back(part);
  }
  return num_partials + count;
}

}  // namespace

int32_t MaxPrefillPartials(const PrefillTiling& tiling, SplitMode splits) {
  return splits == SplitMode::kFixed ? 0 : 2 * tiling.concurrent_tiles;
}

int32_t PlanPrefillTiles(const AttentionArgs& args, const PrefillTiling& tiling,
                         std::vector<PrefillTile>& tiles) {
  tiles.clear();
  const int32_t piece = LongestPiece(args, tiling);
  int32_t num_partials = 0;
  ForEachTile(args, tiling, [&](PrefillTile tile) {
    for (int32_t head = 0; head < args.pool.num_kv_heads; ++head) {
      tile.kv_head = head;
      num_partials = AppendPieces(tile, piece, tiling, num_partials, tiles);
    }
  });
  // Among tiles of equal cost, those that read the same K and V follow one another, to run
  // together.
  const auto order = [](const PrefillTile& t) {
    return std::tuple(t.key_begin - t.key_end, t.seq, t.kv_head, t.key_begin, t.row_begin);
  };
  std::sort(tiles.begin(), tiles.end(),
            [&](const PrefillTile& a, const PrefillTile& b) { return order(a) < order(b); });
  return num_partials;
}

}  // namespace tandem::cuda
