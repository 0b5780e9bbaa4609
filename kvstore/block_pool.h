#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "base/ids.h"

namespace tandem {

class BlockPool;

// Who pins a block: a block table; the prefix cache, at most once per block; a copy under way, to
// the host or to another worker.
enum class PinKind : uint8_t { kTable, kCache, kCopy };

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
    std::swap(kind_, other.kind_);
    return *this;
  }
  ~BlockRef();

  bool present() const { return pool_ != nullptr; }
  BlockId id() const { return id_; }
  BlockRef Share(PinKind kind = PinKind::kTable) const;
  // Whether somebody else holds a pin too: then the block must be copied before it is written.
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
  // Only the prefix cache holds it: it may be evicted.
  bool idle() const { return cache > 0 && tables + copies == 0; }
};

// Is told when a block becomes idle, and whose pin was the last, or is pinned again. Not when an
// idle one is freed: only the cache itself can do that.
class IdleObserver {
 public:
  virtual ~IdleObserver() = default;
  virtual void BecameIdle(BlockId id, PinKind last) = 0;
  virtual void BecameBusy(BlockId id) = 0;
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
  std::optional<BlockRef> Allocate(PinKind kind = PinKind::kTable);

  // nullptr: nobody is told. The observer must outlive the pool or be taken off before.
  void set_observer(IdleObserver* observer) { observer_ = observer; }

  int32_t num_blocks() const { return static_cast<int32_t>(pins_.size()); }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }
  int32_t num_used() const { return num_blocks() - num_free(); }
  int32_t num_shared() const { return sums_.shared; }  // in more than one table
  int32_t num_cached() const { return sums_.cached; }
  int32_t num_idle() const { return sums_.idle; }
  int32_t num_copying() const { return sums_.copying; }  // pinned by copies
  const BlockPins& pins(BlockId id) const;
  int32_t count(BlockId id) const { return pins(id).total(); }

  // Every block is either free without a pin or used with one, never free twice, and the sums are
  // right. INTERNAL names the first block for which that does not hold.
  absl::Status CheckInvariants() const;

 private:
  friend class BlockRef;

  // How many blocks are in each of these states.
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
