#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"

namespace tandem {

class BlockPool;

// What pins a block: a block table, the prefix cache (at most once per block), or a copy under way
// to the host or to another worker.
enum class PinKind : uint8_t { kTable, kCache, kCopy };

// A counted pin on one block: the only way to keep KV alive. Move-only; Share() makes a second pin
// on the same block. The block returns to the pool when its last pin is dropped.
// Thread: engine. The pool must outlive its pins.
class BlockRef {
 public:
  BlockRef() = default;
  BlockRef(BlockRef&& other) noexcept { *this = std::move(other); }
  BlockRef& operator=(BlockRef&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(id_, other.id_);
    std::swap(kind_, other.kind_);
    return *this;
  }
  ~BlockRef();

  bool present() const { return pool_ != nullptr; }
  BlockId id() const { return id_; }
  BlockRef Share(PinKind kind = PinKind::kTable) const;
  // Whether there are other pins on this block; a shared block must be copied before it is written.
  bool shared() const;

 private:
  friend class BlockPool;
  BlockRef(BlockPool* pool, BlockId id, PinKind kind) : pool_(pool), id_(id), kind_(kind) {}

  BlockPool* pool_ = nullptr;
  BlockId id_;
  PinKind kind_ = PinKind::kTable;
};

// The pins on one block.
struct BlockPins {
  int32_t tables = 0;
  int32_t cache = 0;
  int32_t copies = 0;

  int32_t total() const { return tables + cache + copies; }
  // Whether only the prefix cache pins the block, so that it may be evicted.
  bool idle() const { return cache > 0 && tables + copies == 0; }
};

// Is notified when a block becomes idle, with the kind of pin that was dropped last, and when an
// idle block is pinned again. Freeing an idle block is not reported, because only the cache does
// that.
class IdleObserver {
 public:
  virtual ~IdleObserver() = default;
  virtual void BecameIdle(BlockId id, PinKind last) = 0;
  virtual void BecameBusy(BlockId id) = 0;
};

// Reference counts and the free list of `num_blocks` blocks. It knows ids and no memory. The block
// that was freed last is allocated first, because its memory is most likely in a processor cache.
// Thread: engine.
class BlockPool {
 public:
  explicit BlockPool(int32_t num_blocks);
  ~BlockPool();  // CHECKs that no pin is left
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  // Allocates a block and pins it. Empty when no block is free.
  std::optional<BlockRef> Allocate(PinKind kind = PinKind::kTable);

  // nullptr removes the observer. It must outlive the pool or be removed before.
  void set_observer(IdleObserver* observer) { observer_ = observer; }

  int32_t num_blocks() const { return static_cast<int32_t>(pins_.size()); }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }
  int32_t num_used() const { return num_blocks() - num_free(); }
  int32_t num_shared() const { return sums_.shared; }  // blocks pinned by more than one table
  int32_t num_cached() const { return sums_.cached; }
  int32_t num_idle() const { return sums_.idle; }
  int32_t num_copying() const { return sums_.copying; }  // blocks pinned by copies
  const BlockPins& pins(BlockId id) const;
  int32_t count(BlockId id) const { return pins(id).total(); }

  // Checks that every block is either free without pins or used with at least one, that none is in
  // the free list twice, and that the sums are right. INTERNAL names the first block that violates
  // this.
  absl::Status CheckInvariants() const;

 private:
  friend class BlockRef;

  // The number of blocks in each state; a block can be in several.
  struct Sums {
    int32_t shared = 0;
    int32_t cached = 0;
    int32_t idle = 0;
    int32_t copying = 0;

    void Add(const BlockPins& pins, int32_t sign);
    friend bool operator==(const Sums&, const Sums&) = default;
  };

  void Change(BlockId id, PinKind kind, int32_t delta);

  std::vector<BlockPins> pins_;
  std::vector<int32_t> free_;
  Sums sums_;
  IdleObserver* observer_ = nullptr;
};

}  // namespace tandem
