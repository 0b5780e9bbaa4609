#include "kvstore/kv_convert.h"

#include <algorithm>
#include <string_view>

#include "base/status.h"

namespace tandem {
namespace {

absl::Status SameField(std::string_view field, int32_t from, int32_t to) {
  if (from == to) return absl::OkStatus();
  return FailedPrecondition(
      "KV with {}={} cannot be kept with {}={}: serve the same model on both workers", field, from,
      field, to);
}

}  // namespace

absl::Status CanConvert(const KvLayout& from, const KvLayout& to) {
  RETURN_IF_ERROR(SameField("num_layers", from.num_layers, to.num_layers));
  RETURN_IF_ERROR(SameField("num_kv_heads", from.num_kv_heads, to.num_kv_heads));
  RETURN_IF_ERROR(SameField("head_dim", from.head_dim, to.head_dim));
  if (Widens(from.dtype, to.dtype)) return absl::OkStatus();
  return FailedPrecondition(
      "KV with dtype={} cannot be kept with dtype={} without changing its values: start the decode "
      "worker with dtype {} or f32, or the prefill worker with dtype {}",
      Name(from.dtype), Name(to.dtype), Name(from.dtype), Name(to.dtype));
}

// Numbers are only widened, so that what grows is the block.
int64_t LargestExtentBytesTo(const KvLayout& to) {
  KvLayout from = to;
  int64_t bytes = from.ExtentBytes();
  while (from.block_tokens *= 2, from.Validate().ok()) bytes = from.ExtentBytes();
  return bytes;
}

// Between two block bounds, tokens lie side by side on both sides.
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
