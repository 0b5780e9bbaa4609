#include "router/prefix/aging_set.h"

#include <algorithm>
#include <bit>
#include <utility>

namespace tandem {
namespace {

// At most kFilled / kOf of the slots are filled, so that a search visits few of them.
constexpr size_t kFilled = 5;
constexpr size_t kOf = 8;
constexpr size_t kLeastSlots = 16;

}  // namespace

void AgingSet::SetMaxBytes(size_t max_bytes) {
  const size_t slots = max_bytes / sizeof(uint64_t);
  most_slots_ = slots == 0 ? 0 : std::bit_floor(slots);
  max_young_ = most_slots_ * kFilled / kOf / 2;
  const auto fits = [this] {
    return slots_.size() <= most_slots_ && std::max(num_young_, num_old_) <= max_young_;
  };
  if (!fits()) ForgetOld();
  if (num_old_ > max_young_) {
    num_forgotten_ += num_old_;
    Clear();
  }
  if (!fits()) Rebuild(most_slots_, [](uint64_t) { return true; });
}

template <typename Predicate>
void AgingSet::Rebuild(size_t num_slots, const Predicate& keeps) {
  const std::vector<uint64_t> before = std::exchange(slots_, std::vector<uint64_t>(num_slots));
  for (const uint64_t slot : before) {
    if (slot != kEmpty && keeps(slot)) slots_[Find(slot & ~kGeneration)] = slot;
  }
}

void AgingSet::Insert(uint64_t hash) {
  if (max_young_ == 0) {
    ++num_forgotten_;
    return;
  }
  const uint64_t key = KeyOf(hash);
  if (!slots_.empty()) {
    const size_t at = Find(key);
    if (slots_[at] == (key | young_)) return;
    if (slots_[at] != kEmpty) EraseAt(at);
  }
  if (num_young_ == max_young_) ForgetOld();
  if ((size() + 1) * kOf > slots_.size() * kFilled) {
    const size_t doubled = std::max(2 * slots_.size(), kLeastSlots);
    Rebuild(std::min(doubled, most_slots_), [](uint64_t) { return true; });
  }
  slots_[Find(key)] = key | young_;
  ++num_young_;
}

void AgingSet::Erase(uint64_t hash) {
  if (slots_.empty()) return;
  const size_t at = Find(KeyOf(hash));
  if (slots_[at] != kEmpty) EraseAt(at);
}

// Empties a slot. No search may meet an empty slot before its key, so the slots that follow move
// up, except those whose search begins behind the gap.
void AgingSet::EraseAt(size_t at) {
  --((slots_[at] & kGeneration) == young_ ? num_young_ : num_old_);
  const size_t mask = slots_.size() - 1;
  size_t gap = at;
  for (size_t next = Next(at); slots_[next] != kEmpty; next = Next(next)) {
    const size_t from_home = (next - HomeOf(slots_[next] & ~kGeneration)) & mask;
    if (from_home < ((next - gap) & mask)) continue;
    slots_[gap] = slots_[next];
    gap = next;
  }
  slots_[gap] = kEmpty;
}

// Forgets the old generation; the young one becomes the old one.
void AgingSet::ForgetOld() {
  Rebuild(slots_.size(), [this](uint64_t slot) { return (slot & kGeneration) == young_; });
  num_forgotten_ += num_old_;
  num_old_ = std::exchange(num_young_, 0);
  young_ ^= kGeneration;
}

void AgingSet::Clear() {
  slots_ = {};
  num_young_ = 0;
  num_old_ = 0;
}

void AgingSet::Touch(std::span<const uint64_t> hashes) {
  if (num_old_ == 0) return;
  for (const uint64_t hash : hashes) {
    if (Contains(hash)) Insert(hash);
  }
}

size_t AgingSet::LongestPrefix(std::span<const uint64_t> hashes) const {
  if (hashes.empty() || !Contains(hashes.front())) return 0;  // most sets do not have it
  const auto end =
      std::ranges::partition_point(hashes, [this](uint64_t hash) { return Contains(hash); });
  return static_cast<size_t>(end - hashes.begin());
}

}  // namespace tandem
