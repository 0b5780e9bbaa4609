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
#include "kvstore/codec/kv_codec.h"
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
  uint64_t model_fingerprint = 0;  // part of the root of every chained hash, as is the layout
  PrefixCaching prefix_caching = PrefixCaching::kOn;
  EvictionKind eviction = EvictionKind::kLru;
  int64_t host_bytes = 0;  // budget of the host tier, allocated at start; 0: no host tier
  CodecId host_codec = CodecId::kRaw;  // how KV is encoded in the host tier
  PrefixJournal* journal = nullptr;    // records the prefix cache; outlives the store; may be null
  bool shared = false;  // the pool is memory that other processes can open (Device::Share)
};

// Counts at one moment, for status pages and the scheduler's view.
struct KvStats {
  int32_t total_blocks = 0;
  int32_t free_blocks = 0;
  int32_t cached_blocks = 0;  // blocks in the prefix cache
  int32_t idle_blocks = 0;    // cached blocks that only the cache pins: they may be evicted
  int32_t shared_blocks = 0;  // blocks in more than one block table
  int32_t pinned_blocks = 0;  // blocks pinned by copies in flight
  int64_t copied_blocks = 0;  // by copy-on-write; this and the next three count since the start
  int64_t evicted_blocks = 0;
  int64_t hit_tokens = 0;    // prompt tokens that were attached from the prefix cache
  int64_t query_tokens = 0;  // prompt tokens that were looked up in the prefix cache
  int64_t host_budget_bytes = 0;
  int64_t host_used_bytes = 0;
  int32_t host_prefix_blocks = 0;  // blocks in the host tier for the prefix cache
  int32_t swapped_blocks = 0;      // blocks of swapped sequences in the host tier
  int64_t swapped_out_blocks = 0;  // this and all fields below count since the start
  int64_t swapped_in_blocks = 0;
  int64_t demoted_blocks = 0;
  int64_t restored_blocks = 0;
  int64_t host_dropped_blocks = 0;  // evicted from the host tier, or refused by it for lack of room
  int64_t host_raw_bytes = 0;     // KV encoded for the host tier, before encoding; 0 without codec
  int64_t host_stored_bytes = 0;  // KV encoded for the host tier, after encoding; 0 without codec
  int64_t host_unfit_blocks =
      0;  // blocks that the host tier did not keep: too large once encoded, or no tables yet
};

// The block copies that copy-on-write requires, gathered from several block tables.
struct BlockCopies {
  std::vector<BlockPair> pairs;  // no block is both a source and a target
  // Sources of copies that no table holds any more. They stay pinned until the copies are queued,
  // because the pool could otherwise hand one out as the target of another pair.
  std::vector<BlockRef> kept;

  void Clear() {
    pairs.clear();
    kept.clear();
  }
};

// How much of one sequence the prefix cache holds.
struct PrefixMatch {
  int64_t device_tokens = 0;  // in full blocks, plus the matching tokens of one further block
  int32_t device_blocks = 0;  // the number of blocks that hold device_tokens
  int32_t idle_blocks = 0;    // the number of device_blocks that only the cache pins
  int64_t host_tokens = 0;    // in full blocks after the last full device block
  int32_t host_blocks = 0;
  bool pending = false;  // the next block is being computed (Expect) or copied from the host
};

// INVALID_ARGUMENT when `device` has no kernels for the KV type of `layout`: quantised types are
// served on the CPU alone.
absl::Status CheckKvType(const KvLayout& layout, const Device& device);

// The KV of one worker: the memory of all blocks, allocated once; the pool that counts them; the
// prefix cache, which keeps full blocks of finished and running sequences until room is needed; and
// the host tier below. Nothing here waits for a copy between device and host: copies run on threads
// of the store, which call `wake` when one has ended; Poll returns the completions.
//
// Everything that reads or writes blocks is queued on one stream, `compute`. So a block may be
// freed, reallocated or shared through the prefix cache as soon as its readers and writers are
// queued, because its next user is queued after them. Copies between device and host keep their own
// order (kvstore/tier/copier.h). Thread: engine. `device` and `compute` must outlive it.
class KvStore {
 public:
  // Creates the store and allocates its memory. INVALID_ARGUMENT for an invalid layout or size, or
  // a KV type that CheckKvType refuses; RESOURCE_EXHAUSTED with the sizes when the device or the
  // host lacks the memory.
  static absl::StatusOr<std::unique_ptr<KvStore>> Create(const KvStoreOptions& options,
                                                         Device& device, Stream& compute,
                                                         std::function<void()> wake);
  // Waits for the copies in flight and for `compute`. All tables must have been destroyed.
  ~KvStore();

  const KvLayout& layout() const { return options_.layout; }
  const BlockPool& pool() const { return pool_; }
  // The bytes of the whole pool. Thread-safe.
  std::span<const std::byte> memory() const { return memory_.bytes(); }
  KvPoolView view() const { return layout().PoolView(memory_.data(), pool_.num_blocks()); }
  // The bytes of one layer of one block.
  std::span<std::byte> Extent(int32_t layer, BlockId block) const;

  // The number of blocks that Reserve and MakeWritable can allocate: free ones and idle ones.
  int32_t AvailableBlocks() const { return pool_.num_free() + pool_.num_idle(); }
  // Allocates blocks in `table` for tokens [0, num_tokens), and evicts idle blocks when none is
  // free. RESOURCE_EXHAUSTED when there are too few; then nothing is allocated.
  absl::Status Reserve(BlockTable& table, int64_t num_tokens);
  // Must be called before tokens [begin, end) are written: replaces each shared block of that range
  // by a new one, and appends to `copies` what Ops::CopyBlocks must copy on `compute` before
  // anything reads or writes through this table. RESOURCE_EXHAUSTED when there are too few blocks;
  // then nothing changes.
  absl::Status MakeWritable(BlockTable& table, int64_t begin, int64_t end, BlockCopies& copies);
  // The number of blocks that writing [begin, end) would allocate, including growth of the table.
  int32_t BlocksToWrite(const BlockTable& table, int64_t begin, int64_t end) const;
  // The number of blocks that would become available if `tables`, and no others, were freed.
  int32_t BlocksGivenBack(std::span<const BlockTable> tables) const;

  // Prefix cache. A key holds the chained hashes of one sequence's tokens and grows with them.
  // Prefixes are shared only among sequences with equal salts.
  PrefixKey NewKey(std::string_view salt);
  // Returns which part of a prefix is cached and Attach would share, up to `max_tokens` tokens.
  // Every hit is compared token by token.
  PrefixMatch Match(const PrefixKey& key, std::span<const int32_t> tokens,
                    int64_t max_tokens) const;
  // Shares the cached device blocks that Match reports into `table`, which must be empty, and
  // returns how many matching tokens they hold. The last block may hold further tokens of another
  // sequence; like every shared block it is copied before it is written.
  int64_t Attach(PrefixKey& key, std::span<const int32_t> tokens, int64_t max_tokens,
                 BlockTable& table);
  // Adds the full blocks of the first `num_computed` of `tokens` to the cache, except those that
  // are cached already. Their KV must be in `table`, or queued on `compute` to be written there.
  void Insert(PrefixKey& key, std::span<const int32_t> tokens, int64_t num_computed,
              const BlockTable& table);
  // Announces that `owner` will compute the blocks of `tokens` that are not cached. Until they are
  // inserted, or until Unexpect, Match reports them as pending to other sequences. Unexpect ignores
  // unknown owners.
  void Expect(SequenceId owner, PrefixKey& key, std::span<const int32_t> tokens);
  void Unexpect(SequenceId owner);
  // Starts to copy the blocks that Match reports on the host into free device blocks and the cache;
  // Match reports them as pending until the completion. RESOURCE_EXHAUSTED when the device has no
  // room, NOT_FOUND when the host has none of the blocks.
  absl::Status Restore(PrefixKey& key, std::span<const int32_t> tokens);

  // Swaps sequences out: starts to copy to the host the blocks that only `tables` (and the prefix
  // cache) hold; blocks in other tables stay pinned on the device. The copied blocks become
  // available when the copy has ended. Clears `tables`. RESOURCE_EXHAUSTED when the host has no
  // room; then `tables` is unchanged.
  absl::StatusOr<SwapId> SwapOut(std::vector<BlockTable>& tables);
  // The number of blocks that SwapOut would copy; empty when the host has no room for them.
  std::optional<int32_t> BlocksToSwapOut(std::span<const BlockTable> tables) const;
  int32_t BlocksToSwapIn(SwapId id) const;
  // Starts to copy a swapped sequence back to the device. May be called after the completion of the
  // swap out. RESOURCE_EXHAUSTED when the device has no room.
  absl::Status SwapIn(SwapId id);
  // May be called after the completion of the swap in. Returns the swapped tables, which have the
  // same content in other blocks.
  std::vector<BlockTable> TakeSwapped(SwapId id);
  // Drops the KV of a swapped sequence, in any state. Blocks under a copy stay pinned until the
  // copy has ended, and its completion is not reported.
  void DropSwapped(SwapId id);

  // Returns the copies that ended since the last call. Also starts to copy blocks that are about to
  // be evicted, so it must be called after every step.
  std::vector<KvCompletion> Poll();

  // Evicts all blocks that only the prefix cache holds, and drops its blocks on the host that no
  // copy reads.
  void ClearCache();

  KvStats stats() const;
  // Checks that reference counts, cache, host tier and copies agree. INTERNAL names the first
  // disagreement.
  absl::Status CheckInvariants() const;

 private:
  // The members that exist only with a host tier.
  struct HostSide;

  KvStore(const KvStoreOptions& options, DeviceBuffer memory, Stream& compute);
  absl::Status StartHostTier(Device& device, std::function<void()> wake);
  uint64_t Fingerprint() const { return layout().Fingerprint(options_.model_fingerprint); }
  bool caching() const { return options_.prefix_caching == PrefixCaching::kOn; }
  absl::Status MakeFree(int32_t num_blocks);

  const KvStoreOptions options_;
  DeviceBuffer memory_;
  Stream& compute_;
  // Members are destroyed from the last to the first, so each may hold pins or leases of the
  // members declared before it.
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
