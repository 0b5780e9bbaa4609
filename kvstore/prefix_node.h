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

// Orders the blocks that continue the same prefix by their tokens, so that the one that agrees
// longest with given tokens is a neighbour of where these would stand.
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

// Place in the order of eviction; no two are equal, since no two were used last at once.
struct EvictionRank {
  double rank = 0;
  uint64_t last_used = 0;
  friend auto operator<=>(const EvictionRank&, const EvictionRank&) = default;
};

// Names a node without keeping it: a serial is never used twice.
struct PrefixNodeId {
  uint64_t hash = 0;
  uint64_t serial = 0;
};

// One full block of a prefix, held on the device, on the host, or on both; or the root of a salt,
// which holds nothing. What is on the device continues what is on the device.
struct PrefixNode {
  PrefixNodeId id;               // its chained hash
  PrefixNode* parent = nullptr;  // nullptr: a root
  int32_t index = -1;            // block of the sequence
  std::vector<int32_t> tokens;

  BlockRef block;              // present: on the device
  HostGroup* group = nullptr;  // not nullptr: on the host, there at group_index
  int32_t group_index = 0;
  bool restoring = false;  // a copy from the host is under way
  // Copies to the host under way: prefixes that part within a store block share its first blocks.
  int32_t demotions = 0;
  bool offered = false;  // to the host, since it was used last

  BlockUse use;
  std::set<PrefixNode*, ByTokens> children;
  int32_t device_children = 0;       // on the device
  int32_t idle_children = 0;         // on the device, and only the cache holds them
  std::optional<EvictionRank> rank;  // present: may be evicted next

  bool on_device() const { return block.present(); }
  bool on_host() const { return group != nullptr; }
};

inline ByTokens::Tokens ByTokens::Of(const PrefixNode* node) { return node->tokens; }

}  // namespace tandem
