#pragma once

#include <cstdint>
#include <memory>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/status/status.h"
#include "kvstore/block_pool.h"
#include "kvstore/block_table.h"
#include "kvstore/eviction_policy.h"
#include "kvstore/kv_layout.h"
#include "kvstore/prefix_journal.h"
#include "kvstore/prefix_key.h"
#include "kvstore/prefix_node.h"
#include "kvstore/tier/host_tier.h"

namespace tandem {

// The cached blocks of one sequence, in the order of its tokens.
struct PrefixPath {
  PrefixNode* end = nullptr;  // the last node of `device`, or the root of the key's salt
  std::vector<PrefixNode*> device;
  PrefixNode* tail = nullptr;  // a further block whose first `tail_tokens` tokens match
  int64_t tail_tokens = 0;
  std::vector<PrefixNode*> host;  // the blocks after `device` that are only on the host
  bool restoring = false;         // the block after `device` is being copied from the host
};

// The tree of cached prefixes: one root per salt, one node per full block, found by chained hash
// and compared by its tokens and its parent's identity, so that a hash collision is never a hit.
// The eviction policy chooses which idle block is evicted, and PrefixMover which blocks are copied
// to the host. Thread: engine.
class PrefixCache final : public IdleObserver {
 public:
  struct Options {
    KvLayout layout;
    uint64_t fingerprint = 0;  // of layout and model: the root of every chained hash
    EvictionKind eviction = EvictionKind::kLru;
    // Records every block that enters or leaves the cache, whether it is on the device or on the
    // host; outlives the cache. nullptr: nothing is recorded.
    PrefixJournal* journal = nullptr;
  };

  // Registers itself as the observer of `pool`. `pool` and `tier` must outlive the cache.
  PrefixCache(const Options& options, BlockPool& pool, HostTier& tier);
  ~PrefixCache() override;
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  PrefixKey NewKey(std::string_view salt);

  PrefixPath Find(const PrefixKey& key, std::span<const int32_t> tokens, int64_t max_tokens) const;
  // Returns the node with this id, or nullptr when it was removed from the cache.
  PrefixNode* Find(PrefixNodeId id) const;
  // Records that a sequence attached the blocks of `path`.
  void Hit(const PrefixPath& path);
  // Adds the full blocks of the first `num_computed` tokens to the cache. The cost is proportional
  // to the number of blocks that this key has not inserted before.
  void Insert(PrefixKey& key, std::span<const int32_t> tokens, int64_t num_computed,
              const BlockTable& table);
  // Attaches a device block to a node that is only on the host.
  void PutOnDevice(PrefixNode& node, const BlockRef& block);

  // Evicts idle blocks until `num_blocks` are free. False, and nothing is evicted, when free and
  // idle blocks together are fewer.
  bool MakeFree(int32_t num_blocks);
  // The first `count` nodes in the order of eviction.
  std::vector<PrefixNode*> NextEvicted(int32_t count) const;

  // Records that block `index` of `group` holds `node`, instead of an older host copy of it.
  void PutOnHost(PrefixNode& node, HostGroup& group, int32_t index);
  // Removes all nodes of `group` from the host. The group is erased unless a copy reads it.
  void DropHost(HostGroup& group);

  // Evicts every idle block, and drops every block on the host that no copy reads.
  void Clear();

  int32_t num_roots() const { return static_cast<int32_t>(roots_.size()); }
  int64_t num_evicted() const { return num_evicted_; }
  int64_t num_lost() const { return num_lost_; }  // evicted blocks without a copy on the host
  absl::Status CheckInvariants() const;

 private:
  struct Root {
    std::shared_ptr<const PrefixRoot> name;
    std::unique_ptr<PrefixNode> node;
  };

  void BecameIdle(BlockId id, PinKind last) override;
  void BecameBusy(BlockId id) override;

  PrefixNode* RootOf(const PrefixKey& key) const;
  void SweepRoots();
  PrefixNode* Child(const PrefixNode& parent, uint64_t hash, std::span<const int32_t> tokens) const;
  void FindTail(std::span<const int32_t> tokens, PrefixPath& path) const;
  // Where Insert continues: the last node that it reached for this key, and its depth in blocks.
  std::pair<PrefixNode*, int32_t> Resume(PrefixKey& key) const;
  PrefixNode* NewChild(PrefixNode& parent, uint64_t hash, std::span<const int32_t> tokens);
  void Touch(PrefixNode& node);

  bool Idle(const PrefixNode& node) const;
  void Enqueue(PrefixNode& node);
  void Dequeue(PrefixNode& node);
  void EnqueueIfEvictable(PrefixNode& node);

  void EvictNext();
  void TakeOffDevice(PrefixNode& node);
  void TakeOffHost(PrefixNode& node);
  // Removes the node and all nodes that continue it.
  void Remove(PrefixNode& node);
  absl::Status CheckNode(const PrefixNode& node) const;

  const Options options_;
  BlockPool& pool_;
  HostTier& tier_;
  const std::unique_ptr<EvictionPolicy> policy_;
  absl::flat_hash_map<std::string, Root> roots_;  // by salt
  size_t sweep_at_;                               // number of roots that triggers a sweep
  absl::flat_hash_map<uint64_t, std::unique_ptr<PrefixNode>> nodes_;  // by chained hash
  std::vector<PrefixNode*> by_block_;  // [num_blocks]: the node of each block, or nullptr
  std::set<std::pair<EvictionRank, PrefixNode*>> queue_;  // idle nodes without idle children
  uint64_t last_serial_ = 0;
  uint64_t last_use_ = 0;
  int64_t num_evicted_ = 0;
  int64_t num_lost_ = 0;
};

}  // namespace tandem
