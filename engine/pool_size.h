#pragma once

#include <cstdint>

#include "absl/status/statusor.h"
#include "kernels/device.h"
#include "kvstore/kv_layout.h"

namespace tandem {

// The number of KV blocks that fit into `fraction` of the device's memory beside the memory that
// this process uses already and `reserved_bytes` that it will use. RESOURCE_EXHAUSTED, with the
// figures, when that is no block, or more than is free; INVALID_ARGUMENT for a fraction that is not
// in (0, 1], or on a device that is the host.
absl::StatusOr<int32_t> BlocksThatFit(const KvLayout& layout, double fraction,
                                      int64_t reserved_bytes, const Device& device);

}  // namespace tandem
