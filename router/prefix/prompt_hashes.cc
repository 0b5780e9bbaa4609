#include "router/prefix/prompt_hashes.h"

#include <algorithm>

#include "base/block_hash.h"

namespace tandem {

PrefixSpace SpaceOf(const WorkerInfo& worker) {
  return {.root = worker.prefix_root, .block_tokens = worker.layout.block_tokens()};
}

std::vector<PrefixSpace> SpacesOf(const ClusterView& view) {
  std::vector<PrefixSpace> spaces;
  for (const WorkerView& worker : view.workers) {
    const PrefixSpace space = SpaceOf(*worker.info);
    if (space.root == 0 || std::ranges::find(spaces, space) != spaces.end()) continue;
    if (spaces.size() == kMostSpaces) break;
    spaces.push_back(space);
  }
  return spaces;
}

const PromptHashes::Chain* PromptHashes::Find(const PrefixSpace& space) const {
  const auto found = std::ranges::find(chains, space, &Chain::space);
  return found == chains.end() ? nullptr : &*found;
}

int32_t PromptHashes::CachedTokens(const Chain& chain, size_t blocks) const {
  const int64_t tokens = static_cast<int64_t>(blocks) * chain.space.block_tokens;
  return static_cast<int32_t>(std::clamp<int64_t>(tokens, 0, std::max(prompt_tokens - 1, 0)));
}

std::shared_ptr<const PromptHashes> HashPrompt(const std::vector<PrefixSpace>& spaces,
                                               std::string_view salt,
                                               std::span<const int32_t> prompt) {
  auto hashed = std::make_shared<PromptHashes>();
  hashed->prompt_tokens = static_cast<int32_t>(prompt.size());
  for (const PrefixSpace& space : spaces) {
    PromptHashes::Chain& chain = hashed->chains.emplace_back();
    chain.space = space;
    ExtendBlockHashes(PrefixRootHash(space.root, salt), space.block_tokens, prompt, chain.hashes);
  }
  return hashed;
}

}  // namespace tandem
