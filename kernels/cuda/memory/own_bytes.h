#pragma once

#include <atomic>
#include <cstddef>

namespace tandem::cuda {

// The count behind DeviceMemory::own_bytes, kept where memory is allocated and freed.
inline std::atomic<size_t> g_own_bytes = 0;

}  // namespace tandem::cuda
