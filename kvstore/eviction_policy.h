#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

namespace tandem {

enum class EvictionKind : uint8_t { kLru, kCostAware };

// The name of a policy: "lru" or "cost_aware".
std::string_view Name(EvictionKind kind);

// What a policy may consider about one cached block.
struct BlockUse {
  uint64_t last_used = 0;   // the cache's use counter when the block was used last
  uint64_t hits = 0;        // number of sequences that attached it from the cache
  int64_t first_token = 0;  // position in its sequence: later tokens cost more attention
  int64_t num_tokens = 0;
  int64_t bytes = 0;
};

// Ranks idle blocks: the block of the lowest rank is evicted first. The cache asks for a rank when
// a block becomes idle and keeps the order; whatever the ranks, a block is evicted after the blocks
// that continue it. A policy is pure: it has no clock and no state but its own. Each one is a file
// under eviction/ and a line in the registry.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  virtual double Rank(const BlockUse& use) const = 0;
  // Reports that the block of this rank was evicted.
  virtual void Evicted(double rank) = 0;
};

std::unique_ptr<EvictionPolicy> NewEvictionPolicy(EvictionKind kind);

std::unique_ptr<EvictionPolicy> NewLruEviction();
std::unique_ptr<EvictionPolicy> NewCostAwareEviction();

}  // namespace tandem
