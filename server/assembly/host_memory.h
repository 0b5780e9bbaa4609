#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "engine/options.h"
#include "kernels/device.h"

namespace tandem {

// The memory of the host that a worker reserves, in bytes.
struct HostMemoryUse {
  int64_t weights = 0;  // 0 where the device has memory of its own, as is kv_pool
  int64_t kv_pool = 0;
  int64_t host_tier = 0;
  int64_t transfers = 0;  // buffers for KV in transit

  int64_t sum() const { return weights + kv_pool + host_tier + transfers; }
};

// The memory of the host that a worker with these engine options takes. `weight_bytes` are resident
// wherever the device keeps them, `transfer_bytes` are in the host's buffers of transfers.
HostMemoryUse MemoryUseOf(const EngineOptions& engine, const Device& device, int64_t weight_bytes,
                          int64_t transfer_bytes);

// The memory that this process may use, in bytes: that of the machine or, where it is less, the
// limit of the process's cgroups (memory.max, or memory.limit_in_bytes of version 1). `root`: the
// folder that holds /proc and /sys.
int64_t HostMemoryLimit(const std::string& root = "/");

// RESOURCE_EXHAUSTED when the parts exceed `limit` together; it names each part and the flag that
// reduces it.
absl::Status CheckFits(const HostMemoryUse& use, int64_t limit);

}  // namespace tandem
