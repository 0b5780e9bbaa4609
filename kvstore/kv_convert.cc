#include "kvstore/kv_convert.h"

#include <algorithm>

namespace tandem {
// A conversion never narrows the type, except to a quantised type, which f32 can become, too. So
// the largest extent has f32 if `to` is quantised, else the type of `to`, and in both cases the
// largest block.
int64_t LargestExtentBytesTo(const KvLayout& to) {
  KvLayout from = to;
  if (Quantises(DType::kF32, to.dtype)) from.dtype = DType::kF32;
  int64_t bytes = from.ExtentBytes();
  while (from.block_tokens *= 2, from.Validate().ok()) bytes = from.ExtentBytes();
  return bytes;
}

// Between two block boundaries of either layout, tokens are contiguous in both, so each such range
// is one run.
void AppendRuns(const KvLayout& from, const SequenceExtent& extent, TokenSpan wanted,
                const KvLayout& to, std::span<const int32_t> blocks, std::vector<KvRun>& runs) {
  const int32_t first = extent.block * from.block_tokens;
  const int32_t end = std::min(wanted.end, first + from.block_tokens);
  for (int32_t begin = std::max(wanted.begin, first); begin < end;) {
    const int32_t there = begin / to.block_tokens;
    const int32_t until = std::min(end, (there + 1) * to.block_tokens);
    runs.push_back({.src = extent.bytes,
                    .src_token = begin - first,
                    .dst = {extent.layer, blocks[static_cast<size_t>(there)]},
                    .dst_token = begin - there * to.block_tokens,
                    .num_tokens = until - begin});
    begin = until;
  }
}

}  // namespace tandem
