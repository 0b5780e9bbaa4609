#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "router/cluster/cluster_view.h"

namespace tandem {

// What the hashes of a worker's cached blocks begin with, and how many tokens a block has. Workers
// of one model differ here when they keep KV in other types or blocks.
struct PrefixSpace {
  uint64_t root = 0;  // 0: the worker keeps no prefix cache
  int32_t block_tokens = 0;

  friend bool operator==(const PrefixSpace&, const PrefixSpace&) = default;
};

PrefixSpace SpaceOf(const WorkerInfo& worker);

// The PrefixSpace of each worker in `view`, equal ones once. At most kMostSpaces are returned,
// because a prompt is hashed once for each of them.
inline constexpr size_t kMostSpaces = 4;
std::vector<PrefixSpace> SpacesOf(const ClusterView& view);

// The chained hashes of a prompt's full blocks, in each PrefixSpace that workers had when it
// arrived. Immutable, so that a request and the index share them.
struct PromptHashes {
  struct Chain {
    PrefixSpace space;
    std::vector<uint64_t> hashes;
  };
  std::vector<Chain> chains;
  int32_t prompt_tokens = 0;

  // The chain of hashes in this space; null when the prompt was not hashed for it.
  const Chain* Find(const PrefixSpace& space) const;
  // The tokens that a worker need not compute when it has the first `blocks` blocks. At least one
  // token of a prompt is always computed.
  int32_t CachedTokens(const Chain& chain, size_t blocks) const;
};

// Hashes the full blocks of a prompt in each space. The time grows with the prompt, so callers keep
// it off the router's loop.
std::shared_ptr<const PromptHashes> HashPrompt(const std::vector<PrefixSpace>& spaces,
                                               std::string_view salt,
                                               std::span<const int32_t> prompt);

}  // namespace tandem
