#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "kvstore/kv_store.h"
#include "kvstore/prefix_journal.h"

namespace tandem::simulator {

// The KV pool of one worker as counts: which full blocks of prompts are cached, by the chained
// hashes that a real worker uses, and how many blocks are free. It differs from a real pool in
// three points: only whole blocks are shared, blocks of outputs do not enter the cache, and two
// sequences that compute the same block at the same time hold it once. Thread: one at a time.
class KvCounts {
 public:
  struct Options {
    int32_t total_blocks = 0;
    int32_t block_tokens = 16;
    PrefixCaching caching = PrefixCaching::kOn;
    PrefixJournal* journal = nullptr;  // of what is cached; null: nobody asks. Outlives the pool
  };
  // The blocks of one sequence. The first ones are in the cache, too.
  struct Holding {
    std::vector<uint32_t> cached;  // their nodes
    int32_t own = 0;

    int32_t blocks() const { return static_cast<int32_t>(cached.size()) + own; }
  };
  // What is cached of a prompt.
  struct Match {
    int32_t blocks = 0;
    int32_t idle_blocks = 0;  // of these, the ones that no sequence holds
    bool pending = false;     // a sequence computes the next block now
  };

  explicit KvCounts(const Options& options);

  int32_t BlocksFor(int64_t tokens) const;
  // Blocks that can be taken: free ones, and those that only the cache holds.
  int32_t Available() const { return free_ + idle_; }
  bool caching() const { return options_.caching == PrefixCaching::kOn; }
  int32_t block_tokens() const { return options_.block_tokens; }

  // `hashes` are those of the full blocks of a prompt, of which at most `max_tokens` tokens count.
  Match Find(std::span<const uint64_t> hashes, int64_t max_tokens) const;

  // The empty `holding` gets the first `blocks` blocks, which are cached.
  void Attach(std::span<const uint64_t> hashes, int32_t blocks, Holding& holding);
  // `holding` grows to `blocks` blocks in all; the cache gives up idle ones where none is free.
  // There must be enough.
  void Grow(Holding& holding, int32_t blocks);
  // The full blocks of the first `computed_tokens` tokens enter the cache.
  void Insert(std::span<const uint64_t> hashes, int64_t computed_tokens, Holding& holding);
  // Gives all blocks back; what is cached stays until the blocks are needed.
  void Free(Holding& holding);
  // By how much Available rises when the holding is freed.
  int32_t FreedBy(const Holding& holding) const;

  // A sequence is about to compute the block with this hash.
  void Expect(uint64_t hash) { ++expected_[hash]; }
  void Unexpect(uint64_t hash);

  // A prompt of `tokens` tokens was looked up, of which `hit_tokens` were attached.
  void CountQuery(int64_t tokens, int64_t hit_tokens);
  // Without what a simulated worker does not have: copies, a host tier.
  KvStats stats() const;

 private:
  // A cached block. Idle ones are in a list, the one that became idle first at its front.
  struct Node {
    uint64_t hash = 0;
    int32_t holders = 0;
    uint32_t previous = 0;
    uint32_t next = 0;
  };
  static constexpr uint32_t kListHead = 0;  // nodes_[0]

  uint32_t NewNode(uint64_t hash);
  void Hold(Node& node);
  void LetGo(uint32_t index);
  void EvictOne();

  const Options options_;
  int32_t free_;
  int32_t idle_ = 0;
  std::vector<Node> nodes_;
  std::vector<uint32_t> unused_nodes_;
  absl::flat_hash_map<uint64_t, uint32_t> by_hash_;
  absl::flat_hash_map<uint64_t, int32_t> expected_;
  int64_t evicted_blocks_ = 0;
  int64_t hit_tokens_ = 0;
  int64_t query_tokens_ = 0;
};

}  // namespace tandem::simulator
