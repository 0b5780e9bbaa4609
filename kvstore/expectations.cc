#include "kvstore/expectations.h"

namespace tandem {

void Expectations::Add(SequenceId owner, std::span<const uint64_t> hashes) {
  std::vector<uint64_t>& own = hashes_[owner];
  for (const uint64_t hash : hashes) {
    if (owners_.try_emplace(hash, owner).second) own.push_back(hash);
  }
}

void Expectations::Remove(SequenceId owner) {
  const auto found = hashes_.find(owner);
  if (found == hashes_.end()) return;
  for (const uint64_t hash : found->second) {
    const auto place = owners_.find(hash);
    if (place != owners_.end() && place->second == owner) owners_.erase(place);
  }
  hashes_.erase(found);
}

void Expectations::Fulfil(std::span<const uint64_t> hashes) {
  for (const uint64_t hash : hashes) owners_.erase(hash);
}

}  // namespace tandem
