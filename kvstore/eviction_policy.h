#pragma once

#include <cstdint>
#include <memory>
#include <string_view>

namespace tandem {

enum class EvictionKind : uint8_t { kLru, kCostAware };

// "lru", "cost_aware".
std::string_view Name(EvictionKind kind);

// What is known of one cached block.
struct BlockUse {
  uint64_t last_used = 0;   // the cache's count of uses, then
  uint64_t hits = 0;        // sequences that took it from the cache
  int64_t first_token = 0;  // its place in its sequence: the later, the longer the attention
  int64_t num_tokens = 0;
  int64_t bytes = 0;
};

// Which of the idle blocks goes next: the one of the lowest rank. The cache asks when a block
// becomes idle, and keeps the order; a block that others continue goes after these in any case.
// Pure: no clock, no memory but its own. One file per policy under eviction/, one line in the
// registry.
class EvictionPolicy {
 public:
  virtual ~EvictionPolicy() = default;
  virtual double Rank(const BlockUse& use) const = 0;
  // The block of this rank went.
  virtual void Evicted(double rank) = 0;
};

std::unique_ptr<EvictionPolicy> NewEvictionPolicy(EvictionKind kind);

std::unique_ptr<EvictionPolicy> NewLruEviction();
std::unique_ptr<EvictionPolicy> NewCostAwareEviction();

}  // namespace tandem
