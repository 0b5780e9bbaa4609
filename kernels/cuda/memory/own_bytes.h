#pragma once

#include <atomic>
#include <cstddef>

namespace tandem::cuda {

// Of DeviceMemory::own_bytes: counted where memory is given and where it is freed.
inline std::atomic<size_t> g_own_bytes = 0;

}  // namespace tandem::cuda
