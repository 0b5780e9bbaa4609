#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "kernels/op_args.h"
#include "kvstore/kv_layout.h"

namespace tandem {

// Whether KV that lies as `from` can be kept as `to` with every value unchanged: the same layers,
// KV heads and head_dim; any block sizes; the dtype the same or a wider one that holds all its
// values (f8e4m3 to f16, bf16 and f32; f16 and bf16 to f32). Otherwise FAILED_PRECONDITION with
// both values of the first field that stands in the way.
absl::Status CanConvert(const KvLayout& from, const KvLayout& to);

// No extent that can be converted to `to` is larger than this.
int64_t LargestExtentBytesTo(const KvLayout& to);

// Tokens [begin, end) of a sequence.
struct TokenSpan {
  int32_t begin = 0;
  int32_t end = 0;
};

// One layer of block `block` of a sequence.
struct SequenceExtent {
  std::span<const std::byte> bytes;
  int32_t layer = 0;
  int32_t block = 0;
};

// Appends what Ops::ConvertKv shall move: the tokens of `wanted` that `extent` holds, of a sequence
// that lies as `from`, into `blocks`, which are that sequence's in a pool that lies as `to`. As many
// runs as blocks of the pool that these tokens lie in. CanConvert(from, to) holds.
void AppendRuns(const KvLayout& from, const SequenceExtent& extent, TokenSpan wanted,
                const KvLayout& to, std::span<const int32_t> blocks, std::vector<KvRun>& runs);

}  // namespace tandem
