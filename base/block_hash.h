#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

namespace tandem {

// The chained hashes by which blocks of prompts are known: hash i covers the tokens of blocks [0,
// i], the salt, and the fingerprint of the model and of the layout of its KV. Prefix caches of
// workers and routers that predict what these have cached compute them by these two functions.

// The hash with which the chain of block hashes begins for prompts with the cache salt `salt`.
// fingerprint: KvLayout::Fingerprint.
uint64_t PrefixRootHash(uint64_t fingerprint, std::string_view salt);

// Appends the hashes of those full blocks of `tokens` that `hashes` does not have yet. `hashes` has
// those of the first blocks of the same tokens, or none. block_tokens is positive.
void ExtendBlockHashes(uint64_t root, int32_t block_tokens, std::span<const int32_t> tokens,
                       std::vector<uint64_t>& hashes);

}  // namespace tandem
