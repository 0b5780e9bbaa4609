#pragma once

#include <cstdint>
#include <string_view>

#include "absl/status/status.h"

namespace tandem {

// What two workers must agree on before KV can go from one to the other. Block sizes are not part
// of it, because the receiver cuts what arrives into blocks of its own size.
struct KvShape {
  int32_t num_layers = 0;
  int32_t num_kv_heads = 0;
  int32_t head_dim = 0;
  // The name of the type, as Name(DType) spells it. A router compares the names that workers
  // announce, so that it also serves workers whose type it does not know, as long as both have the
  // same one.
  std::string_view dtype;
};

// Whether KV of shape `from` can be kept as `to`: the numbers are the same, and `to` has the same
// dtype, or a wider one that holds all values of `from` (Widens), or a quantised one to which the
// values of `from` are rounded as those of newly computed tokens are (Quantises). Otherwise
// FAILED_PRECONDITION with both values of the first field that differs. The router checks this
// before it lets a worker join, and a decode worker checks it again for every reservation.
absl::Status CanConvert(const KvShape& from, const KvShape& to);

}  // namespace tandem
