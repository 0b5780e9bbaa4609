#include "kvstore/prefix_key.h"

#include "base/block_hash.h"

namespace tandem {

std::span<const uint64_t> PrefixKey::Extend(std::span<const int32_t> tokens) const {
  ExtendBlockHashes(root_->hash, block_tokens_, tokens, hashes_);
  return std::span(hashes_).first(tokens.size() / static_cast<size_t>(block_tokens_));
}

}  // namespace tandem
