#pragma once

#include <cstdint>
#include <span>

#include "kernels/device.h"

namespace tandem::cpu {

// Makes the copies; hashes[i] becomes the XXH3-64 of what copies[i] wrote, in one pass over the
// source: what is hashed is what is stored, whoever changes the source meanwhile. As many hashes,
// each side as long, not overlapping. Large copies go past the caches, unless `dst` does not begin
// on a cache line: they are seldom read at once, and the target is then not read before it is
// written. Many at a time cost less: what goes past the caches is waited for once.
void CopyAndHashAll(std::span<const ExtentCopy> copies, std::span<uint64_t> hashes);

}  // namespace tandem::cpu
