#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "kernels/device.h"
#include "kernels/op_args.h"
#include "kvstore/block_pool.h"
#include "kvstore/block_table.h"
#include "kvstore/eviction_policy.h"
#include "kvstore/expectations.h"
#include "kvstore/kv_completion.h"
#include "kvstore/kv_layout.h"
#include "kvstore/prefix_cache.h"
#include "kvstore/prefix_key.h"
#include "kvstore/tier/host_pool.h"
#include "kvstore/tier/host_tier.h"

namespace tandem {

enum class PrefixCaching : uint8_t { kOff, kOn };

struct KvStoreOptions {
  KvLayout layout;
  int32_t num_blocks = 0;
  uint64_t model_fingerprint = 0;  // with the layout's, the root of every chained hash
  PrefixCaching prefix_caching = PrefixCaching::kOn;
  EvictionKind eviction = EvictionKind::kLru;
  int64_t host_bytes = 0;  // budget of the host tier, allocated at start; 0: no host tier
  bool shared = false;     // the pool is memory that other processes can open (Device::Share)
};

// Counts at one moment, for status pages and the scheduler's view.
struct KvStats {
  int32_t total_blocks = 0;
  int32_t free_blocks = 0;
  int32_t cached_blocks = 0;  // that the prefix cache holds
  int32_t idle_blocks = 0;    // of these, those that nobody else holds: they may be evicted
  int32_t shared_blocks = 0;  // in more than one block table
  int32_t pinned_blocks = 0;  // held by copies in flight
  int64_t copied_blocks = 0;  // by copy-on-write; this and the following since the start
  int64_t evicted_blocks = 0;
  int64_t hit_tokens = 0;    // attached from the prefix cache
  int64_t query_tokens = 0;  // asked for
  int64_t host_budget_bytes = 0;
  int64_t host_used_bytes = 0;
  int32_t host_prefix_blocks = 0;  // KV blocks that the host tier keeps for the prefix cache
  int32_t swapped_blocks = 0;      // ... and of swapped sequences
  int64_t swapped_out_blocks = 0;  // since the start, as the following
  int64_t swapped_in_blocks = 0;
  int64_t demoted_blocks = 0;
  int64_t restored_blocks = 0;
  int64_t host_dropped_blocks = 0;  // left the host tier, or never entered it, for want of room
};

// The copies that copy-on-write asks for, of several tables.
struct BlockCopies {
  std::vector<BlockPair> pairs;  // no block is both read and written
  // Those that are read and that no table holds any more: not to be handed out, or one of the pairs
  // would write there, until the copies are queued.
  std::vector<BlockRef> kept;

  void Clear() {
    pairs.clear();
    kept.clear();
  }
};

// What the cache holds of one sequence's tokens.
struct PrefixMatch {
  int64_t device_tokens = 0;  // full blocks, and of one more the tokens that agree
  int32_t device_blocks = 0;  // that hold them
  int32_t idle_blocks = 0;    // of these, those that only the cache holds
  int64_t host_tokens = 0;    // full blocks behind the last full device block
  int32_t host_blocks = 0;
  bool pending = false;  // the next block is being computed (Expect) or copied from the host
};

// The KV of one worker: the memory of all blocks, allocated once; the pool that counts them; the
// prefix cache, which keeps full blocks of finished and running sequences until room is needed; and
// the host tier below. Nothing here waits for a copy between device and host: these run on threads
// of the store's own, `wake` is called there when one has ended, and Poll tells the rest.
//
// All that reads or writes blocks is queued on one stream, `compute`. So a block may change hands,
// and be shared through the prefix cache, as soon as what writes or reads it is queued: whoever has
// it next queues behind that. The copies between device and host see to their own order
// (kvstore/tier/copier.h).
// Thread: engine. `device` and `compute` must outlive it.
class KvStore {
 public:
  // INVALID_ARGUMENT for a layout or a size that cannot be; RESOURCE_EXHAUSTED with the sizes when
  // the device or the host has not that much memory.
  static absl::StatusOr<std::unique_ptr<KvStore>> Create(const KvStoreOptions& options,
                                                         Device& device, Stream& compute,
                                                         std::function<void()> wake);
  // Waits for the copies in flight and for what is queued on `compute`. All tables must be gone.
  ~KvStore();

  const KvLayout& layout() const { return options_.layout; }
  const BlockPool& pool() const { return pool_; }
  // All of the pool. Thread-safe.
  std::span<const std::byte> memory() const { return memory_.bytes(); }
  KvPoolView view() const { return layout().PoolView(memory_.data(), pool_.num_blocks()); }
  // The bytes of one layer of one block.
  std::span<std::byte> Extent(int32_t layer, BlockId block) const;

  // Blocks that Reserve and MakeWritable can hand out now: free ones and idle cached ones.
  int32_t AvailableBlocks() const { return pool_.num_free() + pool_.num_idle(); }
  // Makes room in `table` for tokens [0, num_tokens), evicting idle cached blocks where none is
  // free: all of it or, with RESOURCE_EXHAUSTED, none.
  absl::Status Reserve(BlockTable& table, int64_t num_tokens);
  // Before tokens [begin, end) are written: replaces each block there that others hold too by one
  // of the table's own, and adds to `copies` what Ops::CopyBlocks must copy on `compute` before
  // anything that reads or writes through this table. All or, with RESOURCE_EXHAUSTED, nothing.
  absl::Status MakeWritable(BlockTable& table, int64_t begin, int64_t end, BlockCopies& copies);
  // Blocks that writing [begin, end) would take, the growth of the table included.
  int32_t BlocksToWrite(const BlockTable& table, int64_t begin, int64_t end) const;
  // Blocks that would become available if these tables, and no others, gave all back.
  int32_t BlocksGivenBack(std::span<const BlockTable> tables) const;

  // Prefix cache. A key holds the chained hashes of one sequence's tokens and grows with them.
  // `salt` parts the cache: prefixes are shared only among equal salts.
  PrefixKey NewKey(std::string_view salt);
  // What Attach would find, of at most `max_tokens` tokens. Every hit is compared token by token.
  PrefixMatch Match(const PrefixKey& key, std::span<const int32_t> tokens,
                    int64_t max_tokens) const;
  // Shares the cached blocks of that match into `table`, which must be empty; returns how many
  // tokens they hold. The last block may hold others behind them: it is copied when written, as all
  // shared ones.
  int64_t Attach(PrefixKey& key, std::span<const int32_t> tokens, int64_t max_tokens,
                 BlockTable& table);
  // The KV of the first `num_computed` of `tokens` is in `table`, or will be when what is queued on
  // `compute` has run: its full blocks join the cache.
  // Those that equal a block cached already do not.
  void Insert(PrefixKey& key, std::span<const int32_t> tokens, int64_t num_computed,
              const BlockTable& table);
  // `owner` will compute the blocks of `tokens` that are not cached: until Unexpect, or until they
  // are inserted, Match reports them as pending to others. Unknown owners are ignored by Unexpect.
  void Expect(SequenceId owner, PrefixKey& key, std::span<const int32_t> tokens);
  void Unexpect(SequenceId owner);
  // Starts to copy what Match reports on the host into free device blocks and the cache; pending
  // until its completion. RESOURCE_EXHAUSTED when there is no room, NOT_FOUND when there is
  // nothing.
  absl::Status Restore(PrefixKey& key, std::span<const int32_t> tokens);

  // Swap. Starts to copy what only these tables (and the prefix cache) hold to the host; blocks
  // that others hold too stay pinned where they are. The tables' own blocks become available when
  // the copy has ended. `tables` is empty then; RESOURCE_EXHAUSTED, and they are left as they were,
  // when the host has no room.
  absl::StatusOr<SwapId> SwapOut(std::vector<BlockTable>& tables);
  // Blocks that SwapOut would copy; nothing when the host has no room for them.
  std::optional<int32_t> BlocksToSwapOut(std::span<const BlockTable> tables) const;
  int32_t BlocksToSwapIn(SwapId id) const;
  // After the completion of the swap out. RESOURCE_EXHAUSTED when the device has no room.
  absl::Status SwapIn(SwapId id);
  // After the completion of the swap in: the tables as they were, with other blocks.
  std::vector<BlockTable> TakeSwapped(SwapId id);
  // Forgets it, in whatever state; blocks under a copy are kept until that has ended, unseen.
  void DropSwapped(SwapId id);

  // The copies that ended since the last call. Also starts to copy what is about to be evicted, so
  // it is to be called after every step.
  std::vector<KvCompletion> Poll();

  // Lets go of everything that only the cache holds.
  void ClearCache();

  KvStats stats() const;
  // Reference counts, cache, host tier and copies agree. INTERNAL names the first that does not.
  absl::Status CheckInvariants() const;

 private:
  // What there is only with a host tier.
  struct HostSide;

  KvStore(const KvStoreOptions& options, DeviceBuffer memory, Stream& compute);
  absl::Status StartHostTier(Device& device, std::function<void()> wake);
  uint64_t Fingerprint() const { return layout().Fingerprint(options_.model_fingerprint); }
  bool caching() const { return options_.prefix_caching == PrefixCaching::kOn; }
  absl::Status MakeFree(int32_t num_blocks);

  const KvStoreOptions options_;
  DeviceBuffer memory_;
  Stream& compute_;
  // Each may hold what those above it lent.
  BlockPool pool_;
  std::unique_ptr<HostPool> host_pool_;
  HostTier host_tier_;
  PrefixCache cache_;
  Expectations expected_;
  std::unique_ptr<HostSide> host_;  // nullptr: no host tier
  int64_t copied_blocks_ = 0;
  int64_t hit_tokens_ = 0;
  int64_t query_tokens_ = 0;
};

}  // namespace tandem
