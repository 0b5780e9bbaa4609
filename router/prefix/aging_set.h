#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "absl/hash/hash.h"

namespace tandem {

// A set of hashes in bounded memory. It has two generations: when the young one is full, it becomes
// the old one, and what the old one had is forgotten. So hashes that were neither inserted nor
// touched for long go first, and no order has to be kept.
//
// Both generations are in one table with open addressing and linear probing, so that a lookup waits
// for one cache line: a router looks up each prompt in the sets of all its workers. Of a hash the
// highest bit is not kept; two hashes that differ in nothing else are taken for one.
// Thread: one at a time.
class AgingSet {
 public:
  // Bounds the memory; forgets what exceeds it. Too few bytes for one hash: the set stays empty.
  void SetMaxBytes(size_t max_bytes);

  void Insert(uint64_t hash);
  void Erase(uint64_t hash);
  void Clear();
  bool Contains(uint64_t hash) const {
    return !slots_.empty() && slots_[Find(KeyOf(hash))] != kEmpty;
  }
  // Loads what Contains(hash) would look at, so that lookups in many sets wait for memory together.
  // Inlined always: GCC 12 takes a function that only prefetches for one without effect, and drops
  // the calls of it.
  [[gnu::always_inline]] void Prefetch(uint64_t hash) const {
    if (!slots_.empty()) __builtin_prefetch(&slots_[HomeOf(KeyOf(hash))]);
  }
  // Moves those of `hashes` that are in the set to the young generation.
  void Touch(std::span<const uint64_t> hashes);

  // How many of `hashes`, from the first on, are in the set. They must be the chained hashes of one
  // prompt: a cache that has one has all before it, so a logarithmic number of lookups suffices.
  // Where the set has forgotten some, the number may be too small.
  size_t LongestPrefix(std::span<const uint64_t> hashes) const;

  size_t size() const { return num_young_ + num_old_; }
  size_t bytes() const { return slots_.size() * sizeof(uint64_t); }
  uint64_t num_forgotten() const { return num_forgotten_; }

 private:
  static constexpr uint64_t kEmpty = 0;
  static constexpr uint64_t kGeneration = 1;  // says which generation a slot is of

  // A hash as slots hold it, without its generation.
  static uint64_t KeyOf(uint64_t hash) { return hash << 1 != kEmpty ? hash << 1 : ~kGeneration; }
  // Where the search for a key begins. Workers choose the hashes, so these are mixed.
  size_t HomeOf(uint64_t key) const { return absl::Hash<uint64_t>{}(key) & (slots_.size() - 1); }
  // The slot of this key, or the empty one where it would be. The table must not be empty.
  size_t Find(uint64_t key) const {
    size_t at = HomeOf(key);
    while (slots_[at] != kEmpty && (slots_[at] & ~kGeneration) != key) at = Next(at);
    return at;
  }
  size_t Next(size_t at) const { return (at + 1) & (slots_.size() - 1); }
  void EraseAt(size_t at);
  void ForgetOld();
  // Moves every slot for which `keeps` is true to a table of `num_slots`, a power of two.
  template <typename Predicate>
  void Rebuild(size_t num_slots, const Predicate& keeps);

  size_t most_slots_ = 0;
  size_t max_young_ = 0;  // the most hashes in one generation
  std::vector<uint64_t> slots_;
  uint64_t young_ = 0;  // the generation bit of young hashes
  size_t num_young_ = 0;
  size_t num_old_ = 0;
  uint64_t num_forgotten_ = 0;
};

}  // namespace tandem
