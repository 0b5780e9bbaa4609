#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "scheduler/cache_view.h"
#include "scheduler/sequence_state.h"

namespace tandem {

// A naive KV store of counted blocks, for tests of the scheduler: block tables with shared prompts,
// copies of shared blocks, a prefix cache in which sequences of one group share their first tokens,
// and a host. An operation that lacks blocks sets error(), which keeps the first error.
class BlockModel final : public CacheView {
 public:
  BlockModel(int32_t total_blocks, int32_t block_tokens);

  // The first `tokens` tokens of the prompt are shared by all sequences of `group`; group 0 shares
  // none.
  void Know(const SequenceSpec& spec, int32_t group = 0, int32_t tokens = 0);
  // The sequence takes the blocks of its whole prompt on admission, not chunk by chunk.
  void TakeWhole(SequenceId id) { tables_.at(id).whole = true; }
  // The sequence will be computed again, up to `known` tokens.
  void SetKnown(SequenceId id, int32_t known);
  void Forget(SequenceId id);  // and gives back

  void Attach(SequenceId id, int32_t cached_tokens);
  void Compute(SequenceId id, int32_t end);
  void GiveBack(SequenceId id);
  void Fork(SequenceId parent, SequenceId child);
  void TransferTo(SequenceId from, SequenceId to);
  void BeginSwapOut(SequenceId id);
  void EndSwapOut(SequenceId id);
  void BeginSwapIn(SequenceId id);
  void BeginRestore(SequenceId id);
  void EndRestores();

  void set_host_blocks(int32_t blocks) { host_blocks_ = blocks; }
  // Whether evicted blocks go to the host.
  void set_demotes(bool demotes) { demotes_ = demotes; }
  const std::string& error() const { return error_; }
  int32_t held(SequenceId id) const;
  bool restoring() const { return !restores_.empty(); }

  int32_t AvailableBlocks() const override;
  int32_t BlocksToReach(SequenceId id, int32_t end) const override;
  int32_t BlocksFreedBy(SequenceId id) const override;
  std::optional<int32_t> BlocksToSwapOut(SequenceId id) const override;
  int32_t BlocksToSwapIn(SequenceId id) const override;
  CachedPrefix Prefix(SequenceId id) const override;

 private:
  using Block = int32_t;

  struct Table {
    SequenceSpec spec;
    int32_t group = 0;
    int32_t group_tokens = 0;
    bool whole = false;
    int32_t known = 0;
    int32_t computed = 0;
    std::vector<Block> shared;              // by its rows: full blocks of the prompt; first all
    std::vector<std::vector<Block>> tails;  // of each row, once the prompt is full
    int32_t on_host = 0;                    // blocks, when swapped or swapping out
    bool off_device = false;                // the lists tell its shape only
  };

  struct Group {
    std::vector<Block> device;  // blocks in a row from the first
    int32_t host = 0;           // blocks behind these
  };

  int32_t Ceil(int32_t tokens) const { return (tokens + block_tokens_ - 1) / block_tokens_; }
  std::vector<Block*> Blocks(Table& table) const;
  int32_t CountBlocks(const Table& table) const;
  int32_t BlocksAt(const SequenceSpec& spec, int32_t tokens) const;
  bool CopiesLast(const Table& table) const;
  Block Allocate(const char* what);
  void Evict();
  void Drop(Block block);
  void InsertPrefix(const Table& table);
  void SplitRows(Table& table);

  const int32_t block_tokens_;
  std::vector<int32_t> holders_;    // of each block
  std::vector<int32_t> cached_in_;  // the group, 0 for none
  std::map<SequenceId, Table> tables_;
  mutable std::map<int32_t, Group> groups_;
  std::map<int32_t, std::vector<Block>> restores_;
  int32_t host_blocks_ = 0;
  bool demotes_ = false;
  std::string error_;
};

}  // namespace tandem
