#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/ids.h"

namespace tandem {

// Records which sequence is computing which block, by chained hash, so that a second sequence with
// the same prefix can wait instead of computing the block too. It is a hint: when two sequences
// compute the same block, only the first is recorded. Thread: engine.
class Expectations {
 public:
  void Add(SequenceId owner, std::span<const uint64_t> hashes);
  void Remove(SequenceId owner);
  // Reports that these blocks are in the cache now, so nobody needs to wait for them.
  void Fulfil(std::span<const uint64_t> hashes);

  bool Contains(uint64_t hash) const { return owners_.contains(hash); }

 private:
  absl::flat_hash_map<uint64_t, SequenceId> owners_;
  absl::flat_hash_map<SequenceId, std::vector<uint64_t>> hashes_;
};

}  // namespace tandem
