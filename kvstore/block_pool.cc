#include "kvstore/block_pool.h"

#include "base/check.h"
#include "base/status.h"

namespace tandem {

BlockRef::~BlockRef() {
  if (pool_ != nullptr) pool_->Release(id_);
}

BlockRef BlockRef::Share() const {
  TANDEM_CHECK(present(), "shared an empty pin");
  pool_->Acquire(id_);
  return BlockRef(pool_, id_);
}

bool BlockRef::shared() const { return present() && pool_->count(id_) > 1; }

BlockPool::BlockPool(int32_t num_blocks) : counts_(num_blocks, 0) {
  free_.reserve(num_blocks);
  for (int32_t id = num_blocks - 1; id >= 0; --id) free_.push_back(id);
}

BlockPool::~BlockPool() { TANDEM_CHECK(num_used() == 0, "a pin outlived the pool"); }

std::optional<BlockRef> BlockPool::Allocate() {
  if (free_.empty()) return std::nullopt;
  const BlockId id(free_.back());
  free_.pop_back();
  counts_[id.value()] = 1;
  return BlockRef(this, id);
}

int32_t BlockPool::count(BlockId id) const {
  TANDEM_CHECK(id.value() >= 0 && id.value() < num_blocks(), "no such block");
  return counts_[id.value()];
}

void BlockPool::Acquire(BlockId id) {
  TANDEM_CHECK(count(id) > 0, "pinned a free block");
  if (++counts_[id.value()] == 2) ++num_shared_;
}

void BlockPool::Release(BlockId id) {
  TANDEM_CHECK(count(id) > 0, "released a free block");
  const int32_t left = --counts_[id.value()];
  if (left == 1) --num_shared_;
  if (left == 0) free_.push_back(id.value());
}

absl::Status BlockPool::CheckInvariants() const {
  std::vector<bool> is_free(counts_.size(), false);
  for (int32_t id : free_) {
    if (id < 0 || id >= num_blocks()) return Internal("free list holds block {}", id);
    if (is_free[id]) return Internal("block {} is free twice", id);
    is_free[id] = true;
  }
  int32_t num_shared = 0;
  for (int32_t id = 0; id < num_blocks(); ++id) {
    if (counts_[id] < 0 || is_free[id] != (counts_[id] == 0)) {
      return Internal("block {} has count {} and is {}", id, counts_[id],
                      is_free[id] ? "free" : "not free");
    }
    if (counts_[id] > 1) ++num_shared;
  }
  if (num_shared != num_shared_) {
    return Internal("{} blocks are shared, {} were counted", num_shared, num_shared_);
  }
  return absl::OkStatus();
}

}  // namespace tandem
