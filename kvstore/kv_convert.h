#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "kernels/op_args.h"
#include "kvstore/kv_layout.h"

namespace tandem {

// The size of the largest extent of any layout whose KV can be converted to `to` (CanConvert).
int64_t LargestExtentBytesTo(const KvLayout& to);

// Tokens [begin, end) of a sequence.
struct TokenSpan {
  int32_t begin = 0;
  int32_t end = 0;
};

// The KV of one layer in block `block` of a sequence.
struct SequenceExtent {
  std::span<const std::byte> bytes;
  int32_t layer = 0;
  int32_t block = 0;
};

// Appends to `runs` what Ops::ConvertKv is to move: the tokens of `wanted` that `extent` holds. The
// extent has layout `from`; `blocks` are the blocks of the same sequence in a pool of layout `to`.
// Appends one run per block of the pool that these tokens lie in. CanConvert(from, to) must hold.
void AppendRuns(const KvLayout& from, const SequenceExtent& extent, TokenSpan wanted,
                const KvLayout& to, std::span<const int32_t> blocks, std::vector<KvRun>& runs);

}  // namespace tandem
