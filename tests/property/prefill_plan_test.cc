// Random prefill batches through the planner, against what its header promises.
#include "kernels/cuda/attention/prefill_plan.h"

#include <algorithm>
#include <map>
#include <queue>
#include <random>
#include <tuple>
#include <vector>

#include "gtest/gtest.h"

namespace tandem::cuda::prefill_plan_test {
namespace {

struct Sequence {
  int32_t q_len = 0;
  int32_t context = 0;
};

// A batch; holds what `args` looks at.
struct Batch {
  std::vector<Sequence> sequences;
  int32_t num_kv_heads = 1;
  int32_t group = 1;
  int32_t window = 0;
  SplitMode splits = SplitMode::kBalanced;
  std::vector<int32_t> starts;
  std::vector<int32_t> contexts;

  AttentionArgs Args() {
    starts = {0};
    contexts.clear();
    for (const Sequence& s : sequences) {
      starts.push_back(starts.back() + s.q_len);
      contexts.push_back(s.context);
    }
    AttentionArgs args;
    args.q = TensorView(nullptr, DType::kBF16, {starts.back(), num_kv_heads * group, 128});
    args.pool.num_kv_heads = num_kv_heads;
    args.query_starts = starts;
    args.context_lens = contexts;
    args.window = window;
    args.splits = splits;
    return args;
  }
};

struct Plan {
  std::vector<PrefillTile> tiles;
  int32_t num_partials = 0;
};

Plan PlanOf(Batch& batch, const PrefillTiling& tiling) {
  Plan plan;
  plan.num_partials = PlanPrefillTiles(batch.Args(), tiling, plan.tiles);
  return plan;
}

int64_t Cost(const PrefillTile& tile, const PrefillTiling& tiling) {
  return (tile.key_end - tile.key_begin + tiling.tile_keys - 1) / tiling.tile_keys;
}

// The pieces of one tile by position, per (sequence, KV head, first row).
using Tiles = std::map<std::tuple<int32_t, int32_t, int32_t>, std::vector<PrefillTile>>;

Tiles ByTile(const Plan& plan) {
  Tiles tiles;
  for (const PrefillTile& t : plan.tiles) tiles[{t.seq, t.kv_head, t.row_begin}].push_back(t);
  for (auto& [key, pieces] : tiles) {
    std::sort(pieces.begin(), pieces.end(),
              [](const PrefillTile& a, const PrefillTile& b) { return a.key_begin < b.key_begin; });
  }
  return tiles;
}

// Pieces follow one another from a multiple of tile_keys on, without a gap, and the rows of the
// tiles of each sequence and head likewise; so each pair is in exactly one of them when the first
// begins before what the first row sees and the last ends with what the last row sees.
void ExpectCovered(const Batch& batch, const Plan& plan, const PrefillTiling& tiling) {
  Tiles tiles = ByTile(plan);
  size_t expected_tiles = 0;
  for (int32_t s = 0; s < static_cast<int32_t>(batch.sequences.size()); ++s) {
    const auto [q_len, context] = batch.sequences[static_cast<size_t>(s)];
    for (int32_t head = 0; head < batch.num_kv_heads; ++head) {
      for (int32_t row = 0; row < q_len * batch.group; row += tiling.tile_rows) {
        ++expected_tiles;
        const auto found = tiles.find({s, head, row});
        ASSERT_NE(found, tiles.end());
        const std::vector<PrefillTile>& pieces = found->second;
        const int32_t row_end = std::min(row + tiling.tile_rows, q_len * batch.group);
        const int32_t first = context - q_len + row / batch.group;
        const int32_t first_seen = batch.window > 0 ? std::max(0, first + 1 - batch.window) : 0;
        EXPECT_LE(pieces.front().key_begin, first_seen);
        EXPECT_GT(pieces.front().key_begin + tiling.tile_keys, first_seen);
        EXPECT_EQ(pieces.back().key_end, context - q_len + (row_end - 1) / batch.group + 1);
        for (size_t i = 0; i < pieces.size(); ++i) {
          EXPECT_EQ(pieces[i].row_end, row_end);
          EXPECT_EQ(pieces[i].key_begin % tiling.tile_keys, 0);
          EXPECT_LT(pieces[i].key_begin, pieces[i].key_end);
          if (i > 0) {
            EXPECT_EQ(pieces[i].key_begin, pieces[i - 1].key_end);
          }
        }
      }
    }
  }
  EXPECT_EQ(tiles.size(), expected_tiles);
}

void ExpectPartialsNumbered(const Plan& plan, const PrefillTiling& tiling, SplitMode splits) {
  std::vector<int> used(static_cast<size_t>(plan.num_partials), 0);
  for (const auto& [key, pieces] : ByTile(plan)) {
    for (size_t i = 0; i < pieces.size(); ++i) {
      const bool split = pieces.size() > 1;
      EXPECT_EQ(pieces[i].num_partials, split && i == 0 ? static_cast<int32_t>(pieces.size()) : 0);
      if (!split) {
        EXPECT_EQ(pieces[i].partial, -1);
        continue;
      }
      EXPECT_EQ(pieces[i].partial, pieces[0].partial + static_cast<int32_t>(i));
      ASSERT_LT(pieces[i].partial, plan.num_partials);
      ++used[static_cast<size_t>(pieces[i].partial)];
    }
  }
  for (int count : used) EXPECT_EQ(count, 1);
  EXPECT_LE(plan.num_partials, MaxPrefillPartials(tiling, splits));
}

// When each block is given the next tile as soon as it is free.
int64_t Makespan(const Plan& plan, const PrefillTiling& tiling) {
  std::priority_queue<int64_t, std::vector<int64_t>, std::greater<>> free_at;
  for (int32_t i = 0; i < tiling.concurrent_tiles; ++i) free_at.push(0);
  int64_t end = 0;
  for (const PrefillTile& tile : plan.tiles) {
    const int64_t done = free_at.top() + Cost(tile, tiling);
    free_at.pop();
    free_at.push(done);
    end = std::max(end, done);
  }
  return end;
}

// When each block takes the tiles that its number gives it, in rising order every other time, as
// the kernel for sm_90a does.
int64_t FixedMakespan(const Plan& plan, const PrefillTiling& tiling) {
  const auto blocks = static_cast<size_t>(tiling.concurrent_tiles);
  std::vector<int64_t> work(blocks, 0);
  for (size_t i = 0; i < plan.tiles.size(); ++i) {
    const size_t place = i % blocks;
    work[i / blocks % 2 == 0 ? place : blocks - 1 - place] += Cost(plan.tiles[i], tiling);
  }
  return *std::max_element(work.begin(), work.end());
}

double MeanWork(const Plan& plan, const PrefillTiling& tiling) {
  int64_t total = 0;
  for (const PrefillTile& tile : plan.tiles) total += Cost(tile, tiling);
  return static_cast<double>(total) / tiling.concurrent_tiles;
}

class PrefillPlanTest : public testing::Test {
 protected:
  int32_t Pick(int32_t low, int32_t high) {
    return std::uniform_int_distribution<int32_t>(low, high)(random_);
  }

  Batch RandomBatch() {
    constexpr int32_t kGroups[] = {1, 2, 3, 4, 6, 7, 8, 16};
    Batch batch;
    batch.num_kv_heads = Pick(1, 8);
    batch.group = kGroups[Pick(0, 7)];
    batch.window = Pick(0, 2) == 0 ? Pick(1, 3000) : 0;
    batch.splits = Pick(0, 3) == 0 ? SplitMode::kFixed : SplitMode::kBalanced;
    for (int32_t i = Pick(1, 12); i > 0; --i) {
      const int32_t q_len = Pick(0, 3) == 0 ? Pick(0, 2) : Pick(0, 700);
      const int32_t cached = Pick(0, 2) == 0 ? 0 : Pick(0, 20000);
      batch.sequences.push_back({q_len, q_len + cached});
    }
    return batch;
  }

  PrefillTiling RandomTiling() {
    return {.tile_rows = 32 << Pick(0, 2),
            .tile_keys = 32 << Pick(0, 2),
            .concurrent_tiles = Pick(1, 264)};
  }

  std::mt19937 random_{20240611};
};

TEST_F(PrefillPlanTest, EveryVisiblePairIsInOneTile) {
  int64_t split = 0;
  for (int i = 0; i < 300 && !HasFailure(); ++i) {
    Batch batch = RandomBatch();
    const PrefillTiling tiling = RandomTiling();
    const Plan plan = PlanOf(batch, tiling);
    ExpectCovered(batch, plan, tiling);
    ExpectPartialsNumbered(plan, tiling, batch.splits);
    split += plan.num_partials > 0;
    EXPECT_TRUE(std::is_sorted(plan.tiles.begin(), plan.tiles.end(),
                               [&](const PrefillTile& a, const PrefillTile& b) {
                                 return Cost(a, tiling) > Cost(b, tiling);
                               }));
  }
  EXPECT_GT(split, 30);  // else splitting was hardly tested
}

TEST_F(PrefillPlanTest, LargeBatchesAreBalanced) {
  constexpr PrefillTiling kTiling = {.tile_rows = 128, .tile_keys = 128, .concurrent_tiles = 132};
  for (int i = 0; i < 50; ++i) {
    Batch batch;
    batch.num_kv_heads = 8;
    batch.group = 4;
    for (int32_t tokens = 0; tokens < 16384;) {
      const int32_t q_len = Pick(1, 4000);
      batch.sequences.push_back({q_len, q_len + Pick(0, 8000)});
      tokens += q_len;
    }
    const Plan plan = PlanOf(batch, kTiling);
    const double bound = 1.05 * MeanWork(plan, kTiling);
    EXPECT_LE(static_cast<double>(Makespan(plan, kTiling)), bound);
    EXPECT_LE(static_cast<double>(FixedMakespan(plan, kTiling)), bound);
  }
}

// What a short chunk over a long context would take on few blocks is spread over all.
TEST_F(PrefillPlanTest, ShortChunksUseTheWholeDevice) {
  constexpr PrefillTiling kTiling = {.tile_rows = 128, .tile_keys = 128, .concurrent_tiles = 132};
  for (int32_t q_len : {16, 64, 100, 128, 512}) {
    SCOPED_TRACE(q_len);
    Batch batch = {.sequences = {{q_len, 8192 + q_len}}, .num_kv_heads = 8, .group = 4};
    const Plan plan = PlanOf(batch, kTiling);
    EXPECT_LE(static_cast<double>(Makespan(plan, kTiling)),
              1.25 * std::max(MeanWork(plan, kTiling), 512.0 / kTiling.tile_keys));
  }
}

TEST_F(PrefillPlanTest, FixedSplitsDoNotDependOnTheBatch) {
  constexpr PrefillTiling kTiling = {.tile_rows = 128, .tile_keys = 64, .concurrent_tiles = 264};
  Batch alone = {
      .sequences = {{100, 9000}}, .num_kv_heads = 2, .group = 4, .splits = SplitMode::kFixed};
  Batch among = alone;
  for (int32_t i = 0; i < 40; ++i) among.sequences.push_back({i * 10, 1000 + i * 100});
  const Plan plan = PlanOf(alone, kTiling);
  EXPECT_EQ(plan.num_partials, 0);
  Tiles all = ByTile(PlanOf(among, kTiling));
  for (const auto& [key, pieces] : ByTile(plan)) {
    ASSERT_EQ(all[key].size(), pieces.size());
    EXPECT_EQ(all[key][0].key_begin, pieces[0].key_begin);
    EXPECT_EQ(all[key][0].key_end, pieces[0].key_end);
  }
}

TEST_F(PrefillPlanTest, SteadyStateAllocatesNothing) {
  constexpr PrefillTiling kTiling = {.tile_rows = 128, .tile_keys = 64, .concurrent_tiles = 264};
  Batch batch = {.sequences = {{100, 9000}, {0, 0}, {0, 70}, {300, 300}}, .num_kv_heads = 2};
  std::vector<PrefillTile> tiles;
  PlanPrefillTiles(batch.Args(), kTiling, tiles);
  const PrefillTile* memory = tiles.data();
  PlanPrefillTiles(batch.Args(), kTiling, tiles);
  EXPECT_EQ(tiles.data(), memory);
}

TEST_F(PrefillPlanTest, NoRowsNoTiles) {
  Batch batch = {.sequences = {{0, 0}, {0, 50}}};
  const Plan plan = PlanOf(batch, {.tile_rows = 128, .tile_keys = 64, .concurrent_tiles = 264});
  EXPECT_TRUE(plan.tiles.empty());
  EXPECT_EQ(plan.num_partials, 0);
}

}  // namespace
}  // namespace tandem::cuda::prefill_plan_test
