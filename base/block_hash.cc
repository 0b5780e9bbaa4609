#include "base/block_hash.h"

#include <cstddef>

#include "base/hash.h"

namespace tandem {

uint64_t PrefixRootHash(uint64_t fingerprint, std::string_view salt) {
  return Hash64(std::as_bytes(std::span(salt)), fingerprint);
}

void ExtendBlockHashes(uint64_t root, int32_t block_tokens, std::span<const int32_t> tokens,
                       std::vector<uint64_t>& hashes) {
  const auto size = static_cast<size_t>(block_tokens);
  const size_t blocks = tokens.size() / size;
  hashes.reserve(blocks);
  while (hashes.size() < blocks) {
    const auto block = tokens.subspan(hashes.size() * size, size);
    const uint64_t before = hashes.empty() ? root : hashes.back();
    hashes.push_back(Hash64(std::as_bytes(block), before));
  }
}

}  // namespace tandem
