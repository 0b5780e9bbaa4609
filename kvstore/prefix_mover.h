#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "kvstore/block_pool.h"
#include "kvstore/kv_completion.h"
#include "kvstore/prefix_cache.h"
#include "kvstore/tier/copier.h"
#include "kvstore/tier/host_pool.h"
#include "kvstore/tier/host_tier.h"

namespace tandem {

// Moves cached prefixes between the device and the host, one store block at a time: it decides
// which ones and when, and updates the cache when a copy ends.
//
// To the host: a full store block that was hit again is copied at once; one that is about to be
// evicted is copied when free blocks run low. Its blocks stay pinned until the copy has ended, so
// only a few copies run at a time: pinned blocks are not available to sequences. To the device:
// only on request. The device blocks are allocated when the copy starts and enter the cache when
// their store block was verified. Thread: engine.
class PrefixMover {
 public:
  struct Parts {
    BlockPool& pool;
    PrefixCache& cache;
    HostPool& host_pool;
    HostTier& tier;
    Copier& copier;
  };

  PrefixMover(const Parts& parts, const StoreBlockShape& shape) : parts_(parts), shape_(shape) {}

  // Starts to copy the full store blocks of `path` to the host that are not there yet. Called after
  // a sequence attached the blocks of `path`.
  void WriteThrough(const PrefixPath& path);
  // Copies blocks that are about to be evicted when free blocks run low; cheap otherwise.
  void DemoteAhead();
  // Starts to copy the blocks of `path` that are only on the host to the device. RESOURCE_EXHAUSTED
  // when the device has no room; NOT_FOUND when no block of `path` is on the host only.
  absl::Status Restore(const PrefixPath& path);

  // Handles the end of a copy and returns its completion; empty when another class posted the copy.
  std::optional<KvCompletion> Finish(const CopyDone& done);

  // The number of slabs that TakeSlabs can provide.
  int32_t AvailableSlabs() const;
  // Takes `count` slabs and drops prefixes from the host when too few are free. Empty when fewer
  // can be provided.
  std::vector<HostSlab> TakeSlabs(int32_t count);

  // The number of slabs that copies to the host are filling.
  int32_t num_slabs_in_flight() const { return num_demotions_; }
  int64_t num_demoted() const { return num_demoted_; }
  int64_t num_restored() const { return num_restored_; }
  int64_t num_dropped() const { return num_dropped_; }  // blocks that the host had no room for

  // Checks that blocks under a copy are pinned and marked in their nodes, and that counts are
  // right.
  absl::Status CheckInvariants() const;

 private:
  // One store block that is being copied, with its nodes and its pinned device blocks.
  struct GroupMove {
    std::vector<PrefixNodeId> nodes;
    std::vector<BlockRef> blocks;
    HostSlab slab;               // the target of a copy to the host
    HostGroup* group = nullptr;  // the source of a copy from the host
  };
  struct Move {
    KvCompletion::Kind kind = KvCompletion::Kind::kDemote;
    std::vector<GroupMove> groups;
    std::vector<BlockRef> path;  // pins the blocks that a restore continues
  };

  // The nodes of the store block that contains `node`, up to and including `node`.
  std::vector<PrefixNode*> GroupUpTo(PrefixNode& node) const;
  void Demote(const std::vector<PrefixNode*>& nodes);
  void FinishDemotion(Move& move, const CopyDone& done);
  int32_t FinishRestore(Move& move, const CopyDone& done);
  int32_t PutBack(const GroupMove& group);

  const Parts parts_;
  const StoreBlockShape shape_;
  absl::flat_hash_map<uint64_t, Move> moves_;  // by the copier's id of the copy
  int32_t num_demotions_ = 0;                  // copies to the host in flight
  int64_t num_demoted_ = 0;
  int64_t num_restored_ = 0;
  int64_t num_dropped_ = 0;
};

}  // namespace tandem
