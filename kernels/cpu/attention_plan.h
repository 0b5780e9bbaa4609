#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "kernels/op_args.h"

// How attention is cut into work, apart from its arithmetic. Only kChunkTokens shows in a result.

namespace tandem::cpu {

// Keys of one partial result, aligned to absolute positions.
inline constexpr int64_t kChunkTokens = 256;
// Query rows that share the widened K and V of a chunk.
inline constexpr int64_t kMaxBlockRows = 128;

// Columns of a panel of widened K or V, and tokens of V that are widened at a time when many rows
// share them: that much stays in the first cache while the rows pass.
inline constexpr size_t kPanel = 32;
inline constexpr size_t kValueStep = 128;
static_assert(kChunkTokens % kValueStep == 0 && kValueStep % kPanel == 0);

// How K and V are multiplied. A row's result depends on it, and so does that of all later tokens.
enum class KvProducts : uint8_t {
  kF32,    // widened, by queries and weights of f32
  kPairs,  // bf16 as they are, by queries and weights rounded to bf16 (attention_pairs-inl.h)
};

// Query rows [begin, end) of one sequence and KV head; row i is query i / G, head i % G of the
// group of G heads. They see the chunks [first_chunk, end_chunk).
struct RowBlock {
  int32_t seq = 0;
  int32_t kv_head = 0;
  int64_t begin = 0;
  int64_t end = 0;
  int64_t first_chunk = 0;
  int64_t end_chunk = 0;

  int64_t num_rows() const { return end - begin; }
  int64_t num_chunks() const { return end_chunk - first_chunk; }
};

// Some chunks of a block.
struct ChunkRun {
  size_t block = 0;
  int64_t begin = 0;
  int64_t end = 0;
};

// The runs of all parts, each part one thread's work.
struct ChunkRuns {
  std::vector<ChunkRun> runs;
  std::vector<size_t> part_ends;
  std::vector<int64_t> starts;  // where each sequence begins on the line of cost
};

// Absolute positions that a query row sees.
struct VisibleKeys {
  int64_t begin = 0;
  int64_t end = 0;
};

inline VisibleKeys Visible(const AttentionArgs& args, int32_t seq, int64_t query) {
  const auto s = static_cast<size_t>(seq);
  const int64_t q_len = args.query_starts[s + 1] - args.query_starts[s];
  const int64_t end = args.context_lens[s] - q_len + query + 1;
  return {args.window > 0 ? std::max<int64_t>(0, end - args.window) : 0, end};
}

// The memory that a block is computed in.
struct BlockMemory {
  float* partials;  // partial results of the block
  float* scratch;   // working memory of the thread
};

// Sizes in floats that follow from the arguments.
struct AttentionShape {
  explicit AttentionShape(const AttentionArgs& args)
      : group(args.q.shape[1] / args.pool.num_kv_heads),
        head_dim(static_cast<size_t>(args.pool.head_dim)),
        padded_dim((head_dim + kPanel - 1) / kPanel * kPanel),
        record(padded_dim + kPanel),
        extent_bytes(args.pool.ExtentBytes()),
        row_bytes{args.pool.RowBytes(KvSide::kKeys), args.pool.RowBytes(KvSide::kValues)},
        block_shift(std::countr_zero(static_cast<uint32_t>(args.pool.block_tokens))) {}

  // The scratch of one thread, in floats.
  size_t ScratchFloats() const {
    return padded_dim * (kMaxBlockRows + kPanel + kValueStep) + CodeFloats() +
           kMaxBlockRows * kChunkTokens + 2 * kMaxBlockRows * record;
  }
  // The floats that up to kPanel quantised keys take once they are unpacked: a byte per channel, a
  // scale per group.
  size_t CodeFloats() const { return kPanel * (padded_dim / 4 + padded_dim / kPanel); }

  int64_t group;  // query heads per KV head
  size_t head_dim;
  size_t padded_dim;  // head_dim rounded up to whole panels
  size_t record;      // a partial result of one row: padded_dim, 16 sums, the maximum, padding
  int64_t extent_bytes;
  int64_t row_bytes[2];  // bytes of a row of K, and of V
  int block_shift;       // log2(block_tokens)
};

// The block of the query rows [begin, end), at least one, of a sequence and KV head.
RowBlock MakeRowBlock(const AttentionArgs& args, int32_t seq, int32_t kv_head, int64_t begin,
                      int64_t end);
// Puts the blocks of all sequences into `blocks`, by sequence, then KV head, then row.
void PlanBlocks(const AttentionArgs& args, std::vector<RowBlock>& blocks);
// Sorts blocks by their cost, the most expensive first.
void SortByCost(std::vector<RowBlock>& blocks);

// Cuts the chunks of the blocks of a decode step, as PlanBlocks has them, into runs for
// `num_threads` by the rule of kernels/split_plan.h; `part_ends[i]` is the end of those of part i.
// Empty when the blocks alone keep the threads busy.
void PlanChunkRuns(const AttentionArgs& args, const std::vector<RowBlock>& blocks, int num_threads,
                   ChunkRuns& plan);

}  // namespace tandem::cpu
