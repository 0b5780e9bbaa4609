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

// Moves cached prefixes between the device and the host, a store block at a time: which go and
// when, and what becomes of the cache when a copy ends.
//
// To the host: a store block that is full and was asked for again is written through; one that is
// about to be evicted follows when free blocks run low. Its blocks stay pinned until the copy has
// ended. Never more than a few at once: these pins are taken from what sequences could have.
// Back: only when asked for. The device blocks are taken at the start, and are in the cache when
// their store block was verified.
// Thread: engine.
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

  // After the blocks of `path` were asked for again.
  void WriteThrough(const PrefixPath& path);
  // When free blocks run low; costs little when they do not.
  void DemoteAhead();
  // RESOURCE_EXHAUSTED when the device has no room; NOT_FOUND when the host has nothing of it.
  absl::Status Restore(const PrefixPath& path);

  // Nothing when the copy is not one of this class.
  std::optional<KvCompletion> Finish(const CopyDone& done);

  // Slabs that TakeSlabs can hand out.
  int32_t AvailableSlabs() const;
  // Drops prefixes from the host where no slab is free. All, or none when there are fewer.
  std::vector<HostSlab> TakeSlabs(int32_t count);

  // Slabs of copies to the host under way.
  int32_t num_slabs_in_flight() const { return num_demotions_; }
  int64_t num_demoted() const { return num_demoted_; }
  int64_t num_restored() const { return num_restored_; }
  int64_t num_dropped() const { return num_dropped_; }  // blocks, for want of room on the host

  // Blocks under a copy are pinned, the nodes say so, and the counts are right.
  absl::Status CheckInvariants() const;

 private:
  // One store block under a copy.
  struct GroupMove {
    std::vector<PrefixNodeId> nodes;
    std::vector<BlockRef> blocks;
    HostSlab slab;               // to the host
    HostGroup* group = nullptr;  // from it
  };
  struct Move {
    KvCompletion::Kind kind = KvCompletion::Kind::kDemote;
    std::vector<GroupMove> groups;
    std::vector<BlockRef> path;  // what a restore continues, so that it stays
  };

  // Nodes of the store block that `node` lies in, up to `node`.
  std::vector<PrefixNode*> GroupUpTo(PrefixNode& node) const;
  void Demote(const std::vector<PrefixNode*>& nodes);
  void FinishDemotion(Move& move, const CopyDone& done);
  int32_t FinishRestore(Move& move, const CopyDone& done);
  int32_t PutBack(const GroupMove& group);

  const Parts parts_;
  const StoreBlockShape shape_;
  absl::flat_hash_map<uint64_t, Move> moves_;  // by copy
  int32_t num_demotions_ = 0;                  // under way
  int64_t num_demoted_ = 0;
  int64_t num_restored_ = 0;
  int64_t num_dropped_ = 0;
};

}  // namespace tandem
