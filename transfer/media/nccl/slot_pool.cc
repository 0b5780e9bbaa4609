#include "transfer/media/nccl/slot_pool.h"

#include "base/status.h"

namespace tandem {

NcclSlot::~NcclSlot() {
  if (pool_ != nullptr) pool_->GiveBack(index_);
}

std::span<std::byte> NcclSlot::bytes() const {
  return pool_->memory_.bytes().subspan(index_ * pool_->slot_bytes_, pool_->slot_bytes_);
}

absl::StatusOr<std::shared_ptr<NcclSlotPool>> NcclSlotPool::Create(Device& device,
                                                                   size_t slot_bytes,
                                                                   size_t slots) {
  ASSIGN_OR_RETURN(DeviceBuffer memory, device.Allocate(slot_bytes * slots));
  return std::shared_ptr<NcclSlotPool>(new NcclSlotPool(std::move(memory), slot_bytes, slots));
}

NcclSlotPool::NcclSlotPool(DeviceBuffer memory, size_t slot_bytes, size_t slots)
    : memory_(std::move(memory)), slot_bytes_(slot_bytes), slots_(slots) {
  for (size_t index = slots; index > 0; --index) free_.push_back(index - 1);
}

std::optional<NcclSlot> NcclSlotPool::Take() {
  absl::MutexLock lock(&mutex_);
  if (free_.empty()) return std::nullopt;
  const size_t index = free_.back();
  free_.pop_back();
  return NcclSlot(shared_from_this(), index);
}

bool NcclSlotPool::has_free() const {
  absl::MutexLock lock(&mutex_);
  return !free_.empty();
}

void NcclSlotPool::GiveBack(size_t index) {
  absl::MutexLock lock(&mutex_);
  free_.push_back(index);
}

}  // namespace tandem
