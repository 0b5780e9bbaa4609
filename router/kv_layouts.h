#pragma once

#include <string>

#include "absl/status/status.h"
#include "tandem/v1/kv_transfer.pb.h"

namespace tandem {

// Whether a worker that keeps KV as `to` can decode from what one that keeps it as `from` sends:
// block sizes may differ, and the element type where every value of `from`'s is one of `to`'s, so
// that nothing is rounded. FAILED_PRECONDITION names the field and both values. The workers check
// the same again when they meet (kvstore/kv_convert.h).
absl::Status CanConvert(const v1::KvLayout& from, const v1::KvLayout& to);

// "24 layers, 8 KV heads of 64, 16 tokens per block, bf16"
std::string ToText(const v1::KvLayout& layout);

}  // namespace tandem
