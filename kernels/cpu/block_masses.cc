#include "kernels/cpu/block_masses.h"

#include <algorithm>
#include <cmath>

namespace tandem::cpu {

size_t StepMasses::Plan(const AttentionArgs& args) {
  sequences_.clear();
  starts_.clear();
  if (!args.block_mass.present()) return 0;
  group_ = AttentionShape(args).group;
  size_t floats = 0;
  for (int32_t seq = 0; seq < static_cast<int32_t>(args.context_lens.size()); ++seq) {
    const RowBlock rows = MakeRowBlock(args, seq, 0, 0, group_);
    const BlockMasses masses = {.first_chunk = rows.first_chunk,
                                .num_chunks = rows.num_chunks(),
                                .blocks_per_chunk = kChunkTokens / args.pool.block_tokens};
    starts_.push_back(floats);
    sequences_.push_back(masses);
    floats += static_cast<size_t>(args.pool.num_kv_heads * group_ * masses.RowFloats());
  }
  return floats;
}

BlockMasses StepMasses::Of(int32_t seq, int32_t kv_head) const {
  if (starts_.empty()) return {};
  const auto s = static_cast<size_t>(seq);
  BlockMasses masses = sequences_[s];
  masses.data = data_ + starts_[s] + kv_head * group_ * masses.RowFloats();
  return masses;
}

void StepMasses::Fold(const AttentionArgs& args, int32_t seq, int32_t kv_head) const {
  const int64_t max_blocks = args.block_mass.shape[2];
  float* out = args.block_mass.Row<float>(seq) + kv_head * max_blocks;
  std::fill_n(out, max_blocks, 0.0f);
  const BlockMasses masses = Of(seq, kv_head);
  for (int64_t row = 0; row < group_; ++row) {
    const float max = masses.Row(row)[0];
    const float sum = masses.Row(row)[1];
    for (int64_t chunk = masses.first_chunk; chunk < masses.first_chunk + masses.num_chunks;
         ++chunk) {
      const float* of_chunk = masses.OfChunk(row, chunk);
      const float scale = std::exp2(of_chunk[0] - max) / sum;
      const int64_t first = chunk * masses.blocks_per_chunk;
      const int64_t count = std::min(masses.blocks_per_chunk, max_blocks - first);
      for (int64_t i = 0; i < count; ++i) out[first + i] += of_chunk[1 + i] * scale;
    }
  }
}

}  // namespace tandem::cpu
