#include "kvstore/block_pool.h"

#include "base/check.h"
#include "base/status.h"

namespace tandem {
namespace {

int32_t& PinsOf(BlockPins& pins, PinKind kind) {
  switch (kind) {
    case PinKind::kTable:
      return pins.tables;
    case PinKind::kCache:
      return pins.cache;
    case PinKind::kCopy:
      return pins.copies;
  }
  TANDEM_CHECK(false, "no such kind of pin");
}

bool Possible(const BlockPins& pins) {
  return pins.tables >= 0 && pins.copies >= 0 && pins.cache >= 0 && pins.cache <= 1;
}

}  // namespace

BlockRef::~BlockRef() {
  if (pool_ != nullptr) pool_->Change(id_, kind_, -1);
}

BlockRef BlockRef::Share(PinKind kind) const {
  TANDEM_CHECK(present(), "shared an empty pin");
  TANDEM_CHECK(pool_->count(id_) > 0, "pinned a free block");
  pool_->Change(id_, kind, 1);
  return BlockRef(pool_, id_, kind);
}

bool BlockRef::shared() const { return present() && pool_->count(id_) > 1; }

BlockPool::BlockPool(int32_t num_blocks) : pins_(num_blocks) {
  free_.reserve(num_blocks);
  for (int32_t id = num_blocks - 1; id >= 0; --id) free_.push_back(id);
}

BlockPool::~BlockPool() { TANDEM_CHECK(num_used() == 0, "a pin outlived the pool"); }

std::optional<BlockRef> BlockPool::Allocate(PinKind kind) {
  if (free_.empty()) return std::nullopt;
  const BlockId id(free_.back());
  free_.pop_back();
  Change(id, kind, 1);
  return BlockRef(this, id, kind);
}

const BlockPins& BlockPool::pins(BlockId id) const {
  TANDEM_CHECK(id.value() >= 0 && id.value() < num_blocks(), "no such block");
  return pins_[id.value()];
}

void BlockPool::Sums::Add(const BlockPins& pins, int32_t sign) {
  shared += pins.tables > 1 ? sign : 0;
  cached += pins.cache > 0 ? sign : 0;
  idle += pins.idle() ? sign : 0;
  copying += pins.copies > 0 ? sign : 0;
}

void BlockPool::Change(BlockId id, PinKind kind, int32_t delta) {
  BlockPins& pins = pins_[id.value()];
  const bool was_idle = pins.idle();
  sums_.Add(pins, -1);
  PinsOf(pins, kind) += delta;
  sums_.Add(pins, 1);
  TANDEM_CHECK(Possible(pins), "a pin was let go of twice, or the cache holds a block twice");
  if (pins.total() == 0) {
    free_.push_back(id.value());
  } else if (observer_ != nullptr && was_idle != pins.idle()) {
    was_idle ? observer_->BecameBusy(id) : observer_->BecameIdle(id, kind);
  }
}

absl::Status BlockPool::CheckInvariants() const {
  std::vector<bool> is_free(pins_.size(), false);
  for (int32_t id : free_) {
    if (id < 0 || id >= num_blocks()) return Internal("free list holds block {}", id);
    if (is_free[id]) return Internal("block {} is free twice", id);
    is_free[id] = true;
  }
  Sums sums;
  for (int32_t id = 0; id < num_blocks(); ++id) {
    if (!Possible(pins_[id]) || is_free[id] != (pins_[id].total() == 0)) {
      return Internal("block {} has {} pins and is {}", id, pins_[id].total(),
                      is_free[id] ? "free" : "not free");
    }
    sums.Add(pins_[id], 1);
  }
  if (sums != sums_) {
    return Internal("{} shared, {} cached, {} idle, {} copied blocks; counted {}, {}, {}, {}",
                    sums.shared, sums.cached, sums.idle, sums.copying, sums_.shared, sums_.cached,
                    sums_.idle, sums_.copying);
  }
  return absl::OkStatus();
}

}  // namespace tandem
