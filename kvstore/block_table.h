#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "absl/status/statusor.h"
#include "base/ids.h"
#include "kvstore/block_pool.h"

namespace tandem {

// One copy that copy-on-write asks for: `from` stays pinned until the copy has run.
struct BlockCopy {
  BlockRef from;
  BlockId to;
};

// Logical to physical blocks of one sequence: token t lies in block t / block_tokens, at offset
// t % block_tokens. Blocks may be shared with other tables after Fork.
// Thread: engine.
class BlockTable {
 public:
  explicit BlockTable(int32_t block_tokens) : block_tokens_(block_tokens) {}
  BlockTable(BlockTable&&) = default;
  BlockTable& operator=(BlockTable&&) = default;
  // The last block first: what is idle in the prefix cache is then a leaf there.
  ~BlockTable() { Truncate(0); }

  // A table over these blocks, in this order.
  static BlockTable Over(int32_t block_tokens, std::vector<BlockRef> blocks);

  // Makes room for tokens [0, num_tokens): all of it or, with RESOURCE_EXHAUSTED, none.
  absl::Status Reserve(BlockPool& pool, int64_t num_tokens);

  // Before tokens [begin, end) are written: replaces each block there that others hold too by a
  // new one. The copies must be executed before anything is read or written through this table.
  // All or, with RESOURCE_EXHAUSTED, none.
  absl::StatusOr<std::vector<BlockCopy>> MakeWritable(BlockPool& pool, int64_t begin, int64_t end);

  // A second table over the same blocks; costs no block.
  BlockTable Fork() const;

  // Gives back the blocks past those that hold tokens [0, num_tokens).
  void Truncate(int64_t num_tokens);

  // Where token `position` lies in the pool: block * block_tokens + offset.
  int64_t Slot(int64_t position) const;
  // Pins on blocks [first, last), for whoever sends or copies them.
  std::vector<BlockRef> Pin(int32_t first, int32_t last) const;
  const BlockRef& block(int32_t index) const;

  // How many blocks MakeWritable would copy of those there are.
  int32_t NumShared(int64_t begin, int64_t end) const;

  std::span<const int32_t> block_ids() const { return ids_; }
  int32_t num_blocks() const { return static_cast<int32_t>(ids_.size()); }
  int64_t capacity_tokens() const { return int64_t{num_blocks()} * block_tokens_; }

 private:
  int32_t block_tokens_;
  std::vector<BlockRef> blocks_;
  std::vector<int32_t> ids_;  // blocks_[i].id(), in the form that the ops read
};

// The distinct blocks of these tables that no other table holds, in rising order.
std::vector<BlockId> HeldOnlyBy(const BlockPool& pool, std::span<const BlockTable> tables);

}  // namespace tandem
