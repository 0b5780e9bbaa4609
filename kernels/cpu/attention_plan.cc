#include "kernels/cpu/attention_plan.h"

#include <tuple>

namespace tandem::cpu {
namespace {

// Enough that the last block to end does not leave threads idle for long.
constexpr int64_t kBlocksPerThread = 16;
constexpr int64_t kRunsPerThread = 8;

}  // namespace

void PlanBlocks(const AttentionArgs& args, std::vector<RowBlock>& blocks) {
  const int64_t group = AttentionShape(args).group;
  blocks.clear();
  for (int32_t seq = 0; seq < static_cast<int32_t>(args.context_lens.size()); ++seq) {
    const auto s = static_cast<size_t>(seq);
    const int64_t rows = group * (args.query_starts[s + 1] - args.query_starts[s]);
    for (int64_t begin = 0; begin < rows; begin += kMaxBlockRows) {
      RowBlock block = {.seq = seq, .begin = begin, .end = std::min(rows, begin + kMaxBlockRows)};
      const int64_t first_key = Visible(args, seq, begin / group).begin;
      const int64_t end_key = Visible(args, seq, (block.end - 1) / group).end;
      block.first_chunk = first_key / kChunkTokens;
      block.end_chunk = (end_key + kChunkTokens - 1) / kChunkTokens;
      for (block.kv_head = 0; block.kv_head < args.pool.num_kv_heads; ++block.kv_head) {
        blocks.push_back(block);
      }
    }
  }
  std::stable_sort(blocks.begin(), blocks.end(), [](const RowBlock& a, const RowBlock& b) {
    return a.num_chunks() * a.num_rows() > b.num_chunks() * b.num_rows();
  });
}

void PlanChunkRuns(const std::vector<RowBlock>& blocks, int num_threads,
                   std::vector<ChunkRun>& runs) {
  runs.clear();
  if (num_threads == 1 || static_cast<int64_t>(blocks.size()) >= kBlocksPerThread * num_threads) {
    return;
  }
  int64_t num_chunks = 0;
  for (const RowBlock& block : blocks) num_chunks += block.num_chunks();
  const int64_t length = std::max<int64_t>(1, num_chunks / (kRunsPerThread * num_threads));
  for (size_t i = 0; i < blocks.size(); ++i) {
    const RowBlock& block = blocks[i];
    for (int64_t begin = block.first_chunk; begin < block.end_chunk; begin += length) {
      runs.push_back({i, begin, std::min(block.end_chunk, begin + length)});
    }
  }
}

}  // namespace tandem::cpu
