#include "bench/simulator/kv_counts.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "base/check.h"

namespace tandem::simulator {

KvCounts::KvCounts(const Options& options)
    : options_(options), free_(options.total_blocks), nodes_(1) {}

int32_t KvCounts::BlocksFor(int64_t tokens) const {
  return static_cast<int32_t>((tokens + options_.block_tokens - 1) / options_.block_tokens);
}

KvCounts::Match KvCounts::Find(std::span<const uint64_t> hashes, int64_t max_tokens) const {
  Match match;
  if (options_.caching == PrefixCaching::kOff) return match;
  const auto most = std::min<int64_t>(std::ssize(hashes), max_tokens / options_.block_tokens);
  for (; match.blocks < most; ++match.blocks) {
    const auto place = by_hash_.find(hashes[static_cast<size_t>(match.blocks)]);
    if (place == by_hash_.end()) break;
    if (nodes_[place->second].holders == 0) ++match.idle_blocks;
  }
  match.pending = match.blocks < std::ssize(hashes) &&
                  expected_.contains(hashes[static_cast<size_t>(match.blocks)]);
  return match;
}

uint32_t KvCounts::NewNode(uint64_t hash) {
  uint32_t index = static_cast<uint32_t>(nodes_.size());
  if (unused_nodes_.empty()) {
    nodes_.emplace_back();
  } else {
    index = unused_nodes_.back();
    unused_nodes_.pop_back();
  }
  nodes_[index] = {.hash = hash, .holders = 1};
  by_hash_.emplace(hash, index);
  if (options_.journal != nullptr) options_.journal->Add(hash);
  return index;
}

void KvCounts::Hold(Node& node) {
  if (node.holders++ > 0) return;
  nodes_[node.previous].next = node.next;
  nodes_[node.next].previous = node.previous;
  --idle_;
}

void KvCounts::LetGo(uint32_t index) {
  Node& node = nodes_[index];
  if (--node.holders > 0) return;
  Node& head = nodes_[kListHead];
  node.previous = head.previous;
  node.next = kListHead;
  nodes_[head.previous].next = index;
  head.previous = index;
  ++idle_;
}

void KvCounts::EvictOne() {
  const uint32_t index = nodes_[kListHead].next;
  TANDEM_CHECK(index != kListHead, "the scheduler planned with blocks that the pool does not have");
  Hold(nodes_[index]);
  by_hash_.erase(nodes_[index].hash);
  if (options_.journal != nullptr) options_.journal->Remove(nodes_[index].hash);
  unused_nodes_.push_back(index);
  ++free_;
  ++evicted_blocks_;
}

void KvCounts::Attach(std::span<const uint64_t> hashes, int32_t blocks, Holding& holding) {
  for (const uint64_t hash : hashes.first(static_cast<size_t>(blocks))) {
    holding.cached.push_back(by_hash_.at(hash));
    Hold(nodes_[holding.cached.back()]);
  }
}

void KvCounts::Grow(Holding& holding, int32_t blocks) {
  for (int32_t missing = blocks - holding.blocks(); missing > 0; --missing) {
    if (free_ == 0) EvictOne();
    --free_;
    ++holding.own;
  }
}

void KvCounts::Insert(std::span<const uint64_t> hashes, int64_t computed_tokens, Holding& holding) {
  if (options_.caching == PrefixCaching::kOff) return;
  const auto most = static_cast<size_t>(
      std::min<int64_t>(std::ssize(hashes), computed_tokens / options_.block_tokens));
  while (holding.cached.size() < most) {
    const uint64_t hash = hashes[holding.cached.size()];
    const auto place = by_hash_.find(hash);
    if (place == by_hash_.end()) {
      holding.cached.push_back(NewNode(hash));
    } else {
      holding.cached.push_back(place->second);
      Hold(nodes_[place->second]);
      ++free_;
    }
    --holding.own;
  }
}

// The end of a prompt becomes idle first, because its beginning is more often shared.
void KvCounts::Free(Holding& holding) {
  while (!holding.cached.empty()) {
    LetGo(holding.cached.back());
    holding.cached.pop_back();
  }
  free_ += std::exchange(holding.own, 0);
}

int32_t KvCounts::FreedBy(const Holding& holding) const {
  const auto is_only_holder = [this](uint32_t index) { return nodes_[index].holders == 1; };
  return holding.own + static_cast<int32_t>(std::ranges::count_if(holding.cached, is_only_holder));
}

void KvCounts::Unexpect(uint64_t hash) {
  const auto place = expected_.find(hash);
  if (--place->second == 0) expected_.erase(place);
}

void KvCounts::CountQuery(int64_t tokens, int64_t hit_tokens) {
  if (options_.caching == PrefixCaching::kOff) return;
  query_tokens_ += tokens;
  hit_tokens_ += hit_tokens;
}

KvStats KvCounts::stats() const {
  KvStats stats;
  stats.total_blocks = options_.total_blocks;
  stats.free_blocks = free_;
  stats.cached_blocks = static_cast<int32_t>(by_hash_.size());
  stats.idle_blocks = idle_;
  stats.evicted_blocks = evicted_blocks_;
  stats.hit_tokens = hit_tokens_;
  stats.query_tokens = query_tokens_;
  return stats;
}

}  // namespace tandem::simulator
