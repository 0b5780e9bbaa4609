#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "base/ids.h"

namespace tandem {

// Which blocks, by chained hash, are being computed by whom, so that a second sequence with the
// same prefix can wait for them instead of computing them too. A hint: of a block that two compute,
// the first is known. Thread: engine.
class Expectations {
 public:
  void Add(SequenceId owner, std::span<const uint64_t> hashes);
  void Remove(SequenceId owner);
  // These blocks exist now.
  void Fulfil(std::span<const uint64_t> hashes);

  bool Contains(uint64_t hash) const { return owners_.contains(hash); }

 private:
  absl::flat_hash_map<uint64_t, SequenceId> owners_;
  absl::flat_hash_map<SequenceId, std::vector<uint64_t>> hashes_;
};

}  // namespace tandem
