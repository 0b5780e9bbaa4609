#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "kernels/device.h"

namespace tandem {

class SlotPool;

// A slot of a pool, or none. The destructor gives it back, on any thread. Move-only.
class MemorySlot {
 public:
  MemorySlot() = default;
  MemorySlot(std::shared_ptr<SlotPool> pool, size_t index)
      : pool_(std::move(pool)), index_(index) {}
  MemorySlot(MemorySlot&&) noexcept = default;
  MemorySlot& operator=(MemorySlot&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(index_, other.index_);
    return *this;
  }
  ~MemorySlot();

  explicit operator bool() const { return pool_ != nullptr; }
  std::span<std::byte> bytes() const;

 private:
  std::shared_ptr<SlotPool> pool_;  // null in an empty object
  size_t index_ = 0;
};

// Memory that was set aside at the start, in slots of one size. It is freed with the last slot, so
// a slot that is held for ever keeps all of it. Thread-safe.
class SlotPool : public std::enable_shared_from_this<SlotPool> {
 public:
  SlotPool(DeviceBuffer memory, size_t slot_bytes)
      : memory_(std::move(memory)), slot_bytes_(slot_bytes) {
    // In descending order, because Take takes from the end: the first slots are taken first.
    for (size_t index = num_slots(); index > 0; --index) free_.push_back(index - 1);
  }

  // Takes a free slot; the result is empty when all slots are taken.
  MemorySlot Take() {
    absl::MutexLock lock(&mutex_);
    if (free_.empty()) return MemorySlot();
    const size_t index = free_.back();
    free_.pop_back();
    return MemorySlot(shared_from_this(), index);
  }
  size_t num_free() const {
    absl::MutexLock lock(&mutex_);
    return free_.size();
  }

  size_t slot_bytes() const { return slot_bytes_; }
  size_t num_slots() const { return memory_.size() / slot_bytes_; }
  size_t size_bytes() const { return memory_.size(); }

 private:
  friend MemorySlot;

  void GiveBack(size_t index) {
    absl::MutexLock lock(&mutex_);
    free_.push_back(index);
  }

  const DeviceBuffer memory_;
  const size_t slot_bytes_;
  mutable absl::Mutex mutex_;
  std::vector<size_t> free_ ABSL_GUARDED_BY(mutex_);
};

inline MemorySlot::~MemorySlot() {
  if (pool_ != nullptr) pool_->GiveBack(index_);
}

inline std::span<std::byte> MemorySlot::bytes() const {
  return pool_->memory_.bytes().subspan(index_ * pool_->slot_bytes_, pool_->slot_bytes_);
}

}  // namespace tandem
