#pragma once

#include <cstddef>

namespace simt {

inline constexpr size_t kMaxSharedBytes = 227 << 10;  // dynamic shared memory of a block at most

// Dynamic shared memory before a block runs: `bytes` of NaN, and a guard behind them.
void FillShared(size_t bytes);
// Fail when the guard was written.
void CheckSharedGuard(size_t bytes);
// The bytes [offset, offset + size); Fail, naming the reader, where there are none.
const unsigned char* SharedBytes(size_t offset, size_t size, const char* reader);

}  // namespace simt
