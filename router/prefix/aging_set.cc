#include "router/prefix/aging_set.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace tandem {
namespace {

// A slot of a flat_hash_set has a hash and a byte of control.
constexpr size_t kSlotBytes = sizeof(uint64_t) + 1;
// A flat_hash_set has 2^k - 1 slots. It grows when 7/8 of them are in use, or, after many erasures,
// already when 7/8 * 25/32 are; below 5/8 it never does.
constexpr size_t kFilledSlots = 5;
constexpr size_t kSlots = 8;

}  // namespace

void AgingSet::SetMaxBytes(size_t max_bytes) {
  const size_t slots = max_bytes / 2 / kSlotBytes;  // of a generation
  max_young_ = slots == 0 ? 0 : (std::bit_floor(slots + 1) - 1) * kFilledSlots / kSlots;
  for (Generation* generation : {&young_, &old_}) {
    if (generation->capacity() <= std::max<size_t>(slots, 1) && generation->size() <= max_young_) {
      continue;
    }
    num_forgotten_ += generation->size();
    *generation = Generation();
  }
}

void AgingSet::Insert(uint64_t hash) {
  if (young_.contains(hash)) return;
  if (max_young_ == 0) {
    ++num_forgotten_;
    return;
  }
  old_.erase(hash);
  if (young_.size() >= max_young_) {
    num_forgotten_ += old_.size();
    old_ = std::exchange(young_, {});
  }
  young_.insert(hash);
}

void AgingSet::Erase(uint64_t hash) {
  if (young_.erase(hash) == 0) old_.erase(hash);
}

void AgingSet::Clear() {
  young_ = Generation();
  old_ = Generation();
}

void AgingSet::Touch(std::span<const uint64_t> hashes) {
  if (old_.empty()) return;
  for (const uint64_t hash : hashes) {
    if (old_.contains(hash)) Insert(hash);
  }
}

size_t AgingSet::LongestPrefix(std::span<const uint64_t> hashes) const {
  if (hashes.empty() || !Contains(hashes.front())) return 0;  // most workers have nothing
  const auto end =
      std::ranges::partition_point(hashes, [this](uint64_t hash) { return Contains(hash); });
  return static_cast<size_t>(end - hashes.begin());
}

size_t AgingSet::bytes() const { return (young_.capacity() + old_.capacity()) * kSlotBytes; }

}  // namespace tandem
