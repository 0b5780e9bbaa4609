#pragma once

#include <vector>

#include "absl/status/statusor.h"
#include "engine/profile/cost_parameters.h"
#include "kernels/device.h"
#include "kvstore/kv_layout.h"

namespace tandem {

// Measures the links that two workers of this machine would have, "shm" and "tcp" (over loopback),
// through the transports that carry KV, from and to the memory of `device`. The bandwidth is also
// measured with several streams at a time. Workers measure their actual links when they meet; this
// says what to expect before that. The first link is the fastest. Takes some seconds.
absl::StatusOr<std::vector<NamedLink>> MeasureLinks(const KvLayout& layout, Device& device);

}  // namespace tandem
