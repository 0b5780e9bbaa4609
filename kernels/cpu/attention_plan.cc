#include "kernels/cpu/attention_plan.h"

#include "kernels/split_pieces.h"
#include "kernels/split_plan.h"

namespace tandem::cpu {
namespace {

// So many blocks per thread that the last one to end does not leave threads idle for long.
constexpr int64_t kBlocksPerThread = 16;
constexpr int64_t kPartsPerThread = 8;

}  // namespace

void PlanBlocks(const AttentionArgs& args, std::vector<RowBlock>& blocks) {
  const int64_t group = AttentionShape(args).group;
  blocks.clear();
  for (int32_t seq = 0; seq < static_cast<int32_t>(args.context_lens.size()); ++seq) {
    const auto s = static_cast<size_t>(seq);
    const int64_t rows = group * (args.query_starts[s + 1] - args.query_starts[s]);
    for (int32_t kv_head = 0; kv_head < args.pool.num_kv_heads; ++kv_head) {
      for (int64_t begin = 0; begin < rows; begin += kMaxBlockRows) {
        blocks.push_back(
            MakeRowBlock(args, seq, kv_head, begin, std::min(rows, begin + kMaxBlockRows)));
      }
    }
  }
}

RowBlock MakeRowBlock(const AttentionArgs& args, int32_t seq, int32_t kv_head, int64_t begin,
                      int64_t end) {
  const int64_t group = AttentionShape(args).group;
  const int64_t first_key = Visible(args, seq, begin / group).begin;
  const int64_t end_key = Visible(args, seq, (end - 1) / group).end;
  return {.seq = seq,
          .kv_head = kv_head,
          .begin = begin,
          .end = end,
          .first_chunk = first_key / kChunkTokens,
          .end_chunk = (end_key + kChunkTokens - 1) / kChunkTokens};
}

void SortByCost(std::vector<RowBlock>& blocks) {
  std::stable_sort(blocks.begin(), blocks.end(), [](const RowBlock& a, const RowBlock& b) {
    return a.num_chunks() * a.num_rows() > b.num_chunks() * b.num_rows();
  });
}

void PlanChunkRuns(const AttentionArgs& args, const std::vector<RowBlock>& blocks, int num_threads,
                   ChunkRuns& plan) {
  plan.runs.clear();
  plan.part_ends.clear();
  if (num_threads == 1 || std::ssize(blocks) >= kBlocksPerThread * num_threads) return;
  const SplitRule rule = {.mode = SplitMode::kBalanced,
                          .unit_tokens = kChunkTokens,
                          .pair_cost = 0,
                          .num_kv_heads = args.pool.num_kv_heads,
                          .num_parts = static_cast<int32_t>(kPartsPerThread * num_threads),
                          .window = args.window};
  const auto num_sequences = static_cast<int32_t>(args.context_lens.size());
  plan.starts.resize(args.context_lens.size() + 1);
  FillSplitStarts(rule, args.context_lens.data(), num_sequences, plan.starts.data());
  const SplitLine line = {plan.starts.data(), args.context_lens.data(), num_sequences};
  const size_t blocks_per_pair =
      blocks.size() / (args.context_lens.size() * static_cast<size_t>(args.pool.num_kv_heads));
  for (int32_t i = 0; i < rule.num_parts; ++i) {
    SplitWalk walk(rule, line, i, MakeSplitPart(rule, line, i));
    SplitPiece piece;
    while (walk.Next(&piece)) {
      const auto pair = static_cast<size_t>(piece.seq) * static_cast<size_t>(rule.num_kv_heads) +
                        static_cast<size_t>(piece.kv_head);
      for (size_t b = pair * blocks_per_pair; b < (pair + 1) * blocks_per_pair; ++b) {
        const int64_t end = std::min<int64_t>(piece.unit_end, blocks[b].end_chunk);
        plan.runs.push_back({b, piece.unit_begin, end});
      }
    }
    plan.part_ends.push_back(plan.runs.size());
  }
}

}  // namespace tandem::cpu
