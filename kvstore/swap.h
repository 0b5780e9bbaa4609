#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/statusor.h"
#include "kvstore/block_pool.h"
#include "kvstore/block_table.h"
#include "kvstore/kv_completion.h"
#include "kvstore/prefix_cache.h"
#include "kvstore/prefix_mover.h"
#include "kvstore/tier/copier.h"
#include "kvstore/tier/host_pool.h"

namespace tandem {

// The KV of swapped sequences. The tables of one record may share blocks: each block is copied once
// and is shared again after the swap in. Thread: engine.
class SwapSpace {
 public:
  struct Parts {
    BlockPool& pool;
    PrefixCache& cache;
    PrefixMover& mover;
    Copier& copier;
  };

  SwapSpace(const Parts& parts, const StoreBlockShape& shape, int32_t block_tokens)
      : parts_(parts), shape_(shape), block_tokens_(block_tokens) {}

  // See the methods of the same names in KvStore.
  absl::StatusOr<SwapId> SwapOut(std::vector<BlockTable>& tables);
  std::optional<int32_t> BlocksToSwapOut(std::span<const BlockTable> tables) const;
  int32_t BlocksToSwapIn(SwapId id) const;
  absl::Status SwapIn(SwapId id);
  std::vector<BlockTable> TakeSwapped(SwapId id);
  void DropSwapped(SwapId id);

  // Handles the end of a copy. Returns whether this class posted it. If so, its completion is
  // appended to `completions` unless its record was dropped.
  bool Finish(const CopyDone& done, std::vector<KvCompletion>& completions);

  int32_t num_slabs() const { return num_slabs_; }
  int32_t num_blocks() const { return num_blocks_; }  // blocks on the host or being copied there
  int64_t num_swapped_out() const { return num_swapped_out_; }
  int64_t num_swapped_in() const { return num_swapped_in_; }
  absl::Status CheckInvariants() const;

 private:
  enum class State : uint8_t { kLeaving, kAway, kReturning, kBack, kLost };

  struct Record {
    State state = State::kLeaving;
    std::vector<std::vector<int32_t>> tables;  // per table, indices into `places`
    std::vector<BlockRef> places;              // per distinct block; empty if only on the host
    std::vector<int32_t> moved;                // places of the copied blocks, in store block order
    std::vector<HostSlab> slabs;
    bool dropped = false;
  };

  int32_t SlabsFor(int32_t num_blocks) const;
  Record RecordOf(std::span<const BlockTable> tables) const;
  std::vector<SlabCopy> CopiesOf(const Record& record) const;
  Record& At(SwapId id);
  void Erase(SwapId id);

  const Parts parts_;
  const StoreBlockShape shape_;
  const int32_t block_tokens_;
  absl::flat_hash_map<SwapId, Record> records_;
  absl::flat_hash_map<uint64_t, SwapId> copies_;  // the copies in flight, by the copier's id
  uint64_t last_id_ = 0;
  int32_t num_slabs_ = 0;
  int32_t num_blocks_ = 0;
  int64_t num_swapped_out_ = 0;
  int64_t num_swapped_in_ = 0;
};

}  // namespace tandem
