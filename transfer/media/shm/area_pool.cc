#include "transfer/media/shm/area_pool.h"

#include "base/status.h"

namespace tandem {

absl::StatusOr<RelayMemory> RelayMemory::Create(Device& device, size_t bytes) {
  RelayMemory memory;
  ASSIGN_OR_RETURN(memory.file, NewSharedMemory(bytes));
  ASSIGN_OR_RETURN(memory.mapping, MapShared(memory.file, bytes));
  ASSIGN_OR_RETURN(memory.registration, device.RegisterHost(memory.mapping.bytes()));
  return memory;
}

absl::StatusOr<std::unique_ptr<AreaPool>> AreaPool::Create(Device& device, size_t area_bytes,
                                                           size_t count) {
  std::vector<RelayMemory> areas(count);
  for (RelayMemory& area : areas) {
    ASSIGN_OR_RETURN(area, RelayMemory::Create(device, area_bytes));
  }
  return std::unique_ptr<AreaPool>(new AreaPool(area_bytes, std::move(areas)));
}

AreaPool::AreaPool(size_t area_bytes, std::vector<RelayMemory> areas)
    : area_bytes_(area_bytes), areas_(std::move(areas)) {
  for (size_t area = areas_.size(); area > 0; --area) free_.push_back(area - 1);
}

std::optional<size_t> AreaPool::Take() {
  if (free_.empty()) return std::nullopt;
  const size_t area = free_.back();
  free_.pop_back();
  return area;
}

}  // namespace tandem
