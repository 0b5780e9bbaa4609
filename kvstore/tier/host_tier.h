#pragma once

#include <cstdint>
#include <list>
#include <vector>

#include "absl/status/status.h"
#include "kvstore/tier/host_pool.h"

namespace tandem {

struct PrefixNode;

// One store block of the prefix cache on the host. It exists while it is linked to nodes of the
// cache or read by a copy.
struct HostGroup {
  HostSlab slab;
  uint64_t chained_hash = 0;
  int32_t num_blocks = 0;
  std::vector<PrefixNode*> nodes;  // [num_blocks]; nullptr: node removed or linked to a newer copy
  int32_t num_linked = 0;
  int32_t num_readers = 0;  // number of copies in flight that read it
  std::list<HostGroup>::iterator self;
};

// The store blocks on the host that belong to the prefix cache, in the order of their last use.
// Store blocks of swapped sequences are not among them, because those are never dropped to make
// room. Thread: engine.
class HostTier {
 public:
  // Adds a store block without nodes and with one reader, which is the caller: it links the nodes
  // and then calls RemoveReader.
  HostGroup& Add(HostSlab slab, uint64_t chained_hash, int32_t num_blocks);

  // Records that block `index` of the group holds `node`.
  void Link(HostGroup& group, int32_t index, PrefixNode* node);
  // Removes the node at `index`. Erases the group when it has neither nodes nor readers left.
  void Unlink(HostGroup& group, int32_t index);
  void AddReader(HostGroup& group);
  // Ends the use by one copy. Erases the group when it has neither nodes nor readers left.
  void RemoveReader(HostGroup& group);
  void Touch(HostGroup& group);

  // The least recently used group that no copy reads, or nullptr.
  HostGroup* Oldest();

  int32_t num_groups() const { return static_cast<int32_t>(groups_.size()); }
  int32_t num_unread() const { return num_groups() - num_read_; }  // groups without readers
  int32_t num_blocks() const { return num_blocks_; }               // blocks linked to nodes
  absl::Status CheckInvariants() const;

 private:
  void EraseIfUnused(HostGroup& group);

  std::list<HostGroup> groups_;  // the least recently used first
  int32_t num_blocks_ = 0;
  int32_t num_read_ = 0;  // number of groups with readers
};

}  // namespace tandem
