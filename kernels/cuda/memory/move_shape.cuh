#pragma once

#include <cstdint>

// How much the kernels that move KV in the pool (kv_blocks.cu, kv_tokens.cu) have in flight.

namespace tandem::cuda {

inline constexpr int kMoveThreads = 256;  // of a thread block
inline constexpr int kMoveLoads = 8;      // loads of 16 bytes that a thread has in flight
// Thread blocks of the copies within the pool, which forward passes wait for.
inline constexpr int64_t kCopyBlocksPerSm = 4;

}  // namespace tandem::cuda
