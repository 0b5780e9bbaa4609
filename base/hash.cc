#include "base/hash.h"

#include <xxhash.h>
#if defined(__x86_64__)
// Dispatches to the widest vector instructions of this machine, which is about three times as fast.
#include <xxh_x86dispatch.h>
#endif

namespace tandem {

uint64_t Hash64(std::span<const std::byte> bytes, uint64_t seed) {
  return XXH3_64bits_withSeed(bytes.data(), bytes.size(), seed);
}

}  // namespace tandem
