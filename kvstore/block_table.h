#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "kvstore/block_pool.h"

namespace tandem {

// One copy that copy-on-write requires. `from` must stay pinned until the copy has run.
struct BlockCopy {
  BlockRef from;
  BlockId to;
};

// Maps the logical blocks of one sequence to blocks of the pool: token t lies in block
// t / block_tokens, at offset t % block_tokens. After Fork, blocks may be shared with other tables.
// Thread: engine.
class BlockTable {
 public:
  explicit BlockTable(int32_t block_tokens) : block_tokens_(block_tokens) {}
  BlockTable(BlockTable&&) = default;
  BlockTable& operator=(BlockTable&&) = default;
  // Frees the last block first, so that each block that becomes idle is a leaf of the prefix cache.
  ~BlockTable() { Truncate(0); }

  // Makes a table over `blocks`, in this order.
  static BlockTable Over(int32_t block_tokens, std::vector<BlockRef> blocks);

  // Allocates blocks for tokens [0, num_tokens). RESOURCE_EXHAUSTED when the pool has too few; then
  // none is allocated.
  absl::Status Reserve(BlockPool& pool, int64_t num_tokens);

  // Must be called before tokens [begin, end) are written: replaces each shared block of that range
  // by a new one. The returned copies must run before anything reads or writes through this table.
  // RESOURCE_EXHAUSTED when the pool has too few blocks; then none is replaced.
  absl::StatusOr<std::vector<BlockCopy>> MakeWritable(BlockPool& pool, int64_t begin, int64_t end);

  // Makes a second table over the same blocks. No block is allocated.
  BlockTable Fork() const;

  // Frees the blocks that hold none of the tokens [0, num_tokens).
  void Truncate(int64_t num_tokens);

  // Frees block `index` of the table. The blocks behind it move forward by one index; no KV is
  // copied.
  void Remove(int32_t index);

  // The slot of the token at `position` in the pool: block * block_tokens + offset.
  int64_t Slot(int64_t position) const;
  // Pins blocks [first, last), for sending or copying them.
  std::vector<BlockRef> Pin(int32_t first, int32_t last) const;
  const BlockRef& block(int32_t index) const;

  // The number of existing blocks that MakeWritable would copy.
  int32_t NumShared(int64_t begin, int64_t end) const;

  std::span<const int32_t> block_ids() const { return ids_; }
  int32_t num_blocks() const { return static_cast<int32_t>(ids_.size()); }
  int64_t capacity_tokens() const { return int64_t{num_blocks()} * block_tokens_; }

 private:
  int32_t block_tokens_;
  std::vector<BlockRef> blocks_;
  std::vector<int32_t> ids_;  // ids_[i] == blocks_[i].id(): the array that the kernels read
};

// Returns the distinct blocks that are in `tables` and in no other table, in rising order.
std::vector<BlockId> HeldOnlyBy(const BlockPool& pool, std::span<const BlockTable> tables);

}  // namespace tandem
