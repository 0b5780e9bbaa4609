#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "kernels/device.h"

namespace tandem {

class NcclSlotPool;

// A slot of a pool. The destructor gives it back, on any thread. Move-only.
class NcclSlot {
 public:
  NcclSlot() = default;
  NcclSlot(std::shared_ptr<NcclSlotPool> pool, size_t index)
      : pool_(std::move(pool)), index_(index) {}
  NcclSlot(NcclSlot&&) noexcept = default;
  NcclSlot& operator=(NcclSlot&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(index_, other.index_);
    return *this;
  }
  ~NcclSlot();

  explicit operator bool() const { return pool_ != nullptr; }
  std::span<std::byte> bytes() const;

 private:
  std::shared_ptr<NcclSlotPool> pool_;  // null in an empty object
  size_t index_ = 0;
};

// Memory of a device that was set aside at the start, in slots of one size. It is freed with the last
// slot, so a slot that an abort holds for ever keeps all of it.
// Thread-safe.
class NcclSlotPool : public std::enable_shared_from_this<NcclSlotPool> {
 public:
  // RESOURCE_EXHAUSTED when the device does not have that much memory.
  static absl::StatusOr<std::shared_ptr<NcclSlotPool>> Create(Device& device, size_t slot_bytes,
                                                              size_t slots);

  // Empty when all are taken.
  std::optional<NcclSlot> Take();
  bool has_free() const;

  size_t slot_bytes() const { return slot_bytes_; }
  size_t slots() const { return slots_; }

 private:
  friend NcclSlot;

  NcclSlotPool(DeviceBuffer memory, size_t slot_bytes, size_t slots);
  void GiveBack(size_t index);

  const DeviceBuffer memory_;
  const size_t slot_bytes_;
  const size_t slots_;
  mutable absl::Mutex mutex_;
  std::vector<size_t> free_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem
