#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
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

// Writes the tokens of `wanted` that `extent` holds, one layer of block `block` of a sequence that
// lies as `from`, into the same layer of that sequence as `to`. `place(i)` is the extent of its
// block i there, asked for the blocks that these tokens lie in; the tokens around them are left as
// they are. CanConvert(from, to) holds; `extent` has from.ExtentBytes().
void ConvertExtent(const KvLayout& from, std::span<const std::byte> extent, int32_t block,
                   TokenSpan wanted, const KvLayout& to,
                   absl::FunctionRef<std::byte*(int32_t block)> place);

}  // namespace tandem
