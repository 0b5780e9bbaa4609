#include "kvstore/prefix_key.h"

#include "base/hash.h"

namespace tandem {

std::span<const uint64_t> PrefixKey::Extend(std::span<const int32_t> tokens) const {
  const size_t blocks = tokens.size() / static_cast<size_t>(block_tokens_);
  while (hashes_.size() < blocks) {
    const auto block = tokens.subspan(hashes_.size() * block_tokens_, block_tokens_);
    const uint64_t before = hashes_.empty() ? root_->hash : hashes_.back();
    hashes_.push_back(Hash64(std::as_bytes(block), before));
  }
  return std::span(hashes_).first(blocks);
}

}  // namespace tandem
