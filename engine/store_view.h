#pragma once

#include <cstdint>
#include <functional>
#include <optional>

#include "engine/sequence.h"
#include "kvstore/kv_store.h"
#include "scheduler/cache_view.h"

namespace tandem {

// The KV store as the scheduler sees it: translates sequences into counts of blocks.
// Thread: engine. Everything that the constructor takes must outlive it.
class StoreView final : public CacheView {
 public:
  using FindSequence = std::function<const Sequence&(SequenceId)>;
  // `find` must know every sequence that the scheduler knows, except for reservations.
  StoreView(const KvStore& store, FindSequence find) : store_(store), find_(std::move(find)) {}

  // Sets the number of blocks that a reservation takes, before the scheduler is asked for it. Holds
  // until the next call.
  void SetReservation(SequenceId id, int32_t blocks) {
    reservation_ = id;
    reservation_blocks_ = blocks;
  }

  int32_t AvailableBlocks() const override { return store_.AvailableBlocks(); }
  int32_t BlocksToReach(SequenceId id, int32_t end) const override;
  int32_t BlocksFreedBy(SequenceId id) const override;
  std::optional<int32_t> BlocksToSwapOut(SequenceId id) const override;
  int32_t BlocksToSwapIn(SequenceId id) const override;
  CachedPrefix Prefix(SequenceId id) const override;

 private:
  PrefixMatch Match(const Sequence& sequence) const;
  int32_t BlocksToAdmit(const Sequence& sequence, int32_t end) const;
  int32_t BlocksToGrow(const Sequence& sequence, int32_t end) const;

  const KvStore& store_;
  const FindSequence find_;
  SequenceId reservation_;
  int32_t reservation_blocks_ = 0;
};

}  // namespace tandem
