#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"

namespace tandem {

class BlockPool;

// A counted pin on one block: the only way to keep KV alive. Move-only; Share() makes a second pin
// on the same block. The block returns to the pool when its last pin goes.
// Thread: engine. The pool must outlive its pins.
class BlockRef {
 public:
  BlockRef() = default;
  BlockRef(BlockRef&& other) noexcept { *this = std::move(other); }
  BlockRef& operator=(BlockRef&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(id_, other.id_);
    return *this;
  }
  ~BlockRef();

  bool present() const { return pool_ != nullptr; }
  BlockId id() const { return id_; }
  BlockRef Share() const;
  // Whether somebody else holds a pin too: then the block must be copied before it is written.
  bool shared() const;

 private:
  friend class BlockPool;
  BlockRef(BlockPool* pool, BlockId id) : pool_(pool), id_(id) {}

  BlockPool* pool_ = nullptr;
  BlockId id_;
};

// Reference counts and the free list of `num_blocks` blocks. Knows ids, not memory. The block freed
// last is handed out first, since its memory is the warmest.
// Thread: engine.
class BlockPool {
 public:
  explicit BlockPool(int32_t num_blocks);
  ~BlockPool();  // CHECKs that no pin is left
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // Empty when no block is free.
  std::optional<BlockRef> Allocate();

  int32_t num_blocks() const { return static_cast<int32_t>(counts_.size()); }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }
  int32_t num_used() const { return num_blocks() - num_free(); }
  int32_t num_shared() const { return num_shared_; }
  int32_t count(BlockId id) const;

  // Every block is either free with count 0 or used with count > 0, and never free twice.
  // INTERNAL names the first block for which that does not hold.
  absl::Status CheckInvariants() const;

 private:
  friend class BlockRef;
  void Acquire(BlockId id);
  void Release(BlockId id);

  std::vector<int32_t> counts_;
  std::vector<int32_t> free_;
  int32_t num_shared_ = 0;
};

}  // namespace tandem
