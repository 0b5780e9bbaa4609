#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"

namespace tandem {

// What a worker sets aside of the host's memory, in bytes.
struct HostMemoryUse {
  int64_t weights = 0;  // this and the pool: 0 where they lie on another device
  int64_t kv_pool = 0;
  int64_t host_tier = 0;
  int64_t transfers = 0;  // buffers for KV under way

  int64_t sum() const { return weights + kv_pool + host_tier + transfers; }
};

// What this process may use: the machine's memory or, where that is less, what the cgroups that it
// is in leave it (memory.max, or memory.limit_in_bytes of version 1). `root`: of the file system.
int64_t HostMemoryLimit(const std::string& root = "/");

// RESOURCE_EXHAUSTED, with each part and the flag that makes it less, when they exceed `limit`.
absl::Status CheckFits(const HostMemoryUse& use, int64_t limit);

}  // namespace tandem
