#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/container/flat_hash_set.h"

namespace tandem {

// A set of hashes in bounded memory. It has two generations: when the young one is full, it becomes
// the old one, and what the old one had is forgotten. So hashes that were neither inserted nor
// touched for long go first, and no order has to be kept. Thread: one at a time.
class AgingSet {
 public:
  // Bounds the memory; forgets what exceeds it. Too few bytes for one hash: the set stays empty.
  void SetMaxBytes(size_t max_bytes);

  void Insert(uint64_t hash);
  void Erase(uint64_t hash);
  void Clear();
  bool Contains(uint64_t hash) const { return young_.contains(hash) || old_.contains(hash); }
  // Loads what Contains(hash) would look at, so that lookups in many sets wait for memory together.
  void Prefetch(uint64_t hash) const {
    young_.prefetch(hash);
    old_.prefetch(hash);
  }
  // Makes those of `hashes` that are in the set young.
  void Touch(std::span<const uint64_t> hashes);

  // How many of `hashes`, from the first on, are in the set. They are the hashes of one chain, of
  // which a cache has each after the one before, so a logarithmic number of lookups suffices. Where
  // the set has forgotten some, the number may be too small.
  size_t LongestPrefix(std::span<const uint64_t> hashes) const;

  size_t size() const { return young_.size() + old_.size(); }
  size_t bytes() const;
  uint64_t num_forgotten() const { return num_forgotten_; }

 private:
  using Generation = absl::flat_hash_set<uint64_t>;

  size_t max_young_ = 0;  // hashes in a generation
  Generation young_;
  Generation old_;  // nothing that is in young_
  uint64_t num_forgotten_ = 0;
};

}  // namespace tandem
