#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

namespace tandem {

// XXH3 64-bit of `bytes`: the checksum of every frame and the hash of every fingerprint.
// Not cryptographic: it finds accidents, not attackers.
uint64_t Hash64(std::span<const std::byte> bytes, uint64_t seed = 0);

}  // namespace tandem
