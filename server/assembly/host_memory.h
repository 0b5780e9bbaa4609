#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "engine/options.h"
#include "kernels/device.h"

namespace tandem {

// What a worker sets aside of the host's memory, in bytes.
struct HostMemoryUse {
  int64_t weights = 0;  // this and the pool: 0 where they lie on another device
  int64_t kv_pool = 0;
  int64_t host_tier = 0;
  int64_t transfers = 0;  // buffers for KV under way

  int64_t sum() const { return weights + kv_pool + host_tier + transfers; }
};

// What a worker whose engine is to be made, or was, by these options takes. `weight_bytes` are resident
// wherever the device keeps them, `transfer_bytes` are in the host's buffers of transfers.
HostMemoryUse MemoryUseOf(const EngineOptions& engine, const Device& device, int64_t weight_bytes,
                          int64_t transfer_bytes);

// What this process may use: the machine's memory or, where that is less, what the cgroups that it
// is in leave it (memory.max, or memory.limit_in_bytes of version 1). `root`: of the file system.
int64_t HostMemoryLimit(const std::string& root = "/");

// RESOURCE_EXHAUSTED, with each part and the flag that makes it less, when they exceed `limit`.
absl::Status CheckFits(const HostMemoryUse& use, int64_t limit);

}  // namespace tandem
