#pragma once

#include <cstdint>
#include <list>
#include <vector>

#include "absl/status/status.h"
#include "kvstore/tier/host_pool.h"

namespace tandem {

struct PrefixNode;

// One store block of the prefix cache on the host. It lives while nodes of the cache, or a copy,
// have use for it.
struct HostGroup {
  HostSlab slab;
  uint64_t chained_hash = 0;
  int32_t num_blocks = 0;
  std::vector<PrefixNode*> nodes;  // [num_blocks]; nullptr: its node is gone or has a newer copy
  int32_t num_linked = 0;
  int32_t num_readers = 0;  // copies under way
  std::list<HostGroup>::iterator self;
};

// The store blocks that the host keeps for the prefix cache, in the order of their last use. Those
// of swapped sequences are none of its business: they are never dropped for want of room.
// Thread: engine.
class HostTier {
 public:
  // A store block without nodes and with one reader: its maker, who lets go of it when it has
  // linked them.
  HostGroup& Add(HostSlab slab, uint64_t chained_hash, int32_t num_blocks);

  // Node `index` of the group is `node`.
  void Link(HostGroup& group, int32_t index, PrefixNode* node);
  // May end the group.
  void Unlink(HostGroup& group, int32_t index);
  void AddReader(HostGroup& group);
  // May end the group.
  void RemoveReader(HostGroup& group);
  void Touch(HostGroup& group);

  // The group that was used longest ago and that no copy reads, or nullptr.
  HostGroup* Oldest();

  int32_t num_groups() const { return static_cast<int32_t>(groups_.size()); }
  int32_t num_unread() const { return num_groups() - num_read_; }  // without readers
  int32_t num_blocks() const { return num_blocks_; }               // with nodes
  absl::Status CheckInvariants() const;

 private:
  void EraseIfUnused(HostGroup& group);

  std::list<HostGroup> groups_;  // the oldest first
  int32_t num_blocks_ = 0;
  int32_t num_read_ = 0;  // groups with readers
};

}  // namespace tandem
