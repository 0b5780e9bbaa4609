#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tandem::cpu {

// Copies and returns the XXH3-64 of what it wrote, in one pass over the source: what is hashed is
// what is stored, whoever changes the source meanwhile. As long, not overlapping. Large copies go
// past the caches, unless `dst` does not begin on a cache line: they are seldom read at once, and
// the target is then not read before it is written.
uint64_t CopyAndHash(std::span<std::byte> dst, std::span<const std::byte> src);

}  // namespace tandem::cpu
