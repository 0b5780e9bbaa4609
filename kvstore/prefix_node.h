#pragma once

#include <algorithm>
#include <compare>
#include <cstdint>
#include <optional>
#include <set>
#include <span>
#include <vector>

#include "kvstore/block_pool.h"
#include "kvstore/eviction_policy.h"
#include "kvstore/tier/host_tier.h"

namespace tandem {

struct PrefixNode;

// Orders the blocks that continue the same prefix by their tokens, so that the block with the
// longest match for given tokens is next to their insertion point.
struct ByTokens {
  using is_transparent = void;
  using Tokens = std::span<const int32_t>;
  static Tokens Of(const PrefixNode* node);
  static Tokens Of(Tokens tokens) { return tokens; }
  template <typename A, typename B>
  bool operator()(const A& a, const B& b) const {
    const Tokens x = Of(a);
    const Tokens y = Of(b);
    return std::lexicographical_compare(x.begin(), x.end(), y.begin(), y.end());
  }
};

// The position of a node in the order of eviction. No two are equal, because last_used is unique.
struct EvictionRank {
  double rank = 0;
  uint64_t last_used = 0;
  friend auto operator<=>(const EvictionRank&, const EvictionRank&) = default;
};

// Identifies a node without keeping it alive. A serial is never reused.
struct PrefixNodeId {
  uint64_t hash = 0;
  uint64_t serial = 0;
};

// One full block of a prefix on the device, on the host, or on both; or the root of a salt, which
// has no block. The parent of a node on the device is on the device, too.
struct PrefixNode {
  PrefixNodeId id;               // id.hash is the chained hash of its block
  PrefixNode* parent = nullptr;  // nullptr: a root
  int32_t index = -1;            // index of the block in its sequence
  std::vector<int32_t> tokens;

  BlockRef block;              // present when the block is on the device
  HostGroup* group = nullptr;  // not nullptr when the block is on the host, at group_index
  int32_t group_index = 0;
  bool restoring = false;  // whether a copy from the host is in flight
  // The number of copies to the host in flight. There can be several, because prefixes that diverge
  // within a store block share its first blocks.
  int32_t demotions = 0;
  bool offered = false;  // whether it was offered to the host since its last use

  BlockUse use;
  std::set<PrefixNode*, ByTokens> children;
  int32_t device_children = 0;       // number of children on the device
  int32_t idle_children = 0;         // number of children that only the cache pins
  std::optional<EvictionRank> rank;  // present while the node is in the eviction queue

  bool on_device() const { return block.present(); }
  bool on_host() const { return group != nullptr; }
};

inline ByTokens::Tokens ByTokens::Of(const PrefixNode* node) { return node->tokens; }

}  // namespace tandem
