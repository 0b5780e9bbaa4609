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
#include "kvstore/prefix_key.h"
#include "kvstore/prefix_node.h"
#include "kvstore/tier/host_tier.h"

namespace tandem {

// What the cache holds of one sequence, in the order of its tokens.
struct PrefixPath {
  PrefixNode* end = nullptr;  // the last of `device`, or the root; nullptr: nothing is known
  std::vector<PrefixNode*> device;
  PrefixNode* tail = nullptr;  // one more on the device, of which only the first tokens agree
  int64_t tail_tokens = 0;
  std::vector<PrefixNode*> host;  // behind `device`, on the host alone
  bool restoring = false;         // the block behind `device` is on its way from the host
};

// The tree of cached prefixes: one root per salt, one node per full block, found by chained hash
// and compared by its tokens and its parent's identity, so that no collision of hashes is a hit.
// The mechanism alone: which idle block goes is the policy's affair, what is copied the mover's.
// Thread: engine.
class PrefixCache final : public IdleObserver {
 public:
  struct Options {
    KvLayout layout;
    uint64_t fingerprint = 0;  // of layout and model: the root of every chained hash
    EvictionKind eviction = EvictionKind::kLru;
  };

  // Observes `pool`; both must outlive it.
  PrefixCache(const Options& options, BlockPool& pool, HostTier& tier);
  ~PrefixCache() override;
  PrefixCache(const PrefixCache&) = delete;
  PrefixCache& operator=(const PrefixCache&) = delete;

  PrefixKey NewKey(std::string_view salt);

  PrefixPath Find(const PrefixKey& key, std::span<const int32_t> tokens, int64_t max_tokens) const;
  // nullptr when the node is gone.
  PrefixNode* Find(PrefixNodeId id) const;
  // A sequence took these from the cache.
  void Hit(const PrefixPath& path);
  // The full blocks of the first `num_computed` tokens join the cache. Costs the blocks that were
  // not inserted before.
  void Insert(PrefixKey& key, std::span<const int32_t> tokens, int64_t num_computed,
              const BlockTable& table);
  // A node that is only on the host is on the device too.
  void PutOnDevice(PrefixNode& node, const BlockRef& block);

  // Evicts idle blocks until `num_blocks` are free; false, and nothing is evicted, when these and
  // the free ones are fewer.
  bool MakeFree(int32_t num_blocks);
  // The first `count` in the order of eviction.
  std::vector<PrefixNode*> NextEvicted(int32_t count) const;

  // Node is what block `index` of the group holds; an older copy of it is forgotten.
  void PutOnHost(PrefixNode& node, HostGroup& group, int32_t index);
  // The group's nodes leave the host. It ends unless a copy reads it.
  void DropHost(HostGroup& group);

  // Every idle block, and everything on the host that no copy reads.
  void Clear();

  int32_t num_roots() const { return static_cast<int32_t>(roots_.size()); }
  int64_t num_evicted() const { return num_evicted_; }
  int64_t num_lost() const { return num_lost_; }  // of these, those with no copy on the host
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
  // Where Insert goes on: the last node that it came to, and how many blocks lead there.
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
  // Forgets the node and all that continue it.
  void Remove(PrefixNode& node);
  absl::Status CheckNode(const PrefixNode& node) const;

  const Options options_;
  BlockPool& pool_;
  HostTier& tier_;
  const std::unique_ptr<EvictionPolicy> policy_;
  absl::flat_hash_map<std::string, Root> roots_;  // by salt
  size_t sweep_at_;                               // roots, beyond which unused ones are looked for
  absl::flat_hash_map<uint64_t, std::unique_ptr<PrefixNode>> nodes_;  // by chained hash
  std::vector<PrefixNode*> by_block_;  // [num_blocks]: whose block it is, or nullptr
  std::set<std::pair<EvictionRank, PrefixNode*>> queue_;  // idle, with no idle children
  uint64_t last_serial_ = 0;
  uint64_t last_use_ = 0;
  int64_t num_evicted_ = 0;
  int64_t num_lost_ = 0;
};

}  // namespace tandem
