#include "engine/store_view.h"

#include <algorithm>

#include "absl/container/flat_hash_map.h"

namespace tandem {

PrefixMatch StoreView::Match(const Sequence& sequence) const {
  return store_.Match(sequence.key, sequence.rows.front().tokens, sequence.most_cached_tokens());
}

int32_t StoreView::BlocksToReach(SequenceId id, int32_t end) const {
  if (id == reservation_) return reservation_blocks_;
  const Sequence& sequence = find_(id);
  return sequence.tables.empty() ? BlocksToAdmit(sequence, end) : BlocksToGrow(sequence, end);
}

// The number of blocks that the sequence takes when it is admitted. A prompt whose KV is sent while
// it is computed cannot be preempted, so all of its blocks are allocated on admission. So are the
// blocks for the tokens that are kept when KV is evicted.
int32_t StoreView::BlocksToAdmit(const Sequence& sequence, int32_t end) const {
  if (sequence.request.outgoing()) end = sequence.num_tokens();
  const PrefixMatch match = Match(sequence);
  const int32_t all = store_.layout().BlocksFor(end);
  // A cached block in whose middle the match ends is copied before it is written.
  const bool copied = match.device_tokens % store_.layout().block_tokens != 0;
  const int32_t kept = sequence.will_evict() ? store_.layout().BlocksFor(sequence.num_kept()) : 0;
  return std::max(0, all - match.device_blocks) + match.idle_blocks + (copied ? 1 : 0) + kept;
}

int32_t StoreView::BlocksToGrow(const Sequence& sequence, int32_t end) const {
  const int32_t begin = end - 1;
  if (sequence.tables.size() == 1) {
    const BlockTable& table = sequence.tables.front();
    return store_.BlocksToWrite(table, std::min<int64_t>(begin, table.capacity_tokens()), end);
  }
  // When only rows of this sequence share a block, the last row to write to it does so without a
  // copy.
  int32_t blocks = 0;
  absl::flat_hash_map<int32_t, int32_t> holders;
  for (const BlockTable& table : sequence.tables) {
    blocks += store_.BlocksToWrite(table, std::min<int64_t>(begin, table.capacity_tokens()), end);
    if (begin < table.capacity_tokens()) {
      ++holders[table.block_ids()[static_cast<size_t>(begin / store_.layout().block_tokens)]];
    }
  }
  for (const auto& [block, count] : holders) {
    if (count > 1 && store_.pool().count(BlockId(block)) == count) --blocks;
  }
  return blocks;
}

int32_t StoreView::BlocksFreedBy(SequenceId id) const {
  const Sequence& sequence = find_(id);
  const int32_t kept = sequence.eviction ? sequence.eviction->kept.num_blocks() : 0;
  return store_.BlocksGivenBack(sequence.tables) + kept;
}

std::optional<int32_t> StoreView::BlocksToSwapOut(SequenceId id) const {
  return store_.BlocksToSwapOut(find_(id).tables);
}

int32_t StoreView::BlocksToSwapIn(SequenceId id) const {
  return store_.BlocksToSwapIn(*find_(id).swap);
}

CachedPrefix StoreView::Prefix(SequenceId id) const {
  const PrefixMatch match = Match(find_(id));
  return {.device_tokens = static_cast<int32_t>(match.device_tokens),
          .host_tokens = static_cast<int32_t>(match.host_tokens),
          .host_blocks = match.host_blocks,
          .pending = match.pending};
}

}  // namespace tandem
