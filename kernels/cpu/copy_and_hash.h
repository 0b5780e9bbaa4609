#pragma once

#include <cstdint>
#include <span>

#include "kernels/device.h"

namespace tandem::cpu {

// Makes the copies; hashes[i] becomes the XXH3-64 of what copies[i] wrote. One pass over the source
// makes both, so the hash is that of the stored bytes even if the source changes meanwhile. There
// are as many hashes as copies, and the sides of a copy are equally long and do not overlap. Large
// copies are stored past the caches, unless `dst` does not begin on a cache line: they are seldom
// read soon, and the target is then not read before it is written. Many copies in one call cost
// less, since such stores are waited for once.
void CopyAndHashAll(std::span<const ExtentCopy> copies, std::span<uint64_t> hashes);

}  // namespace tandem::cpu
