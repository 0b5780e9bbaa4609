#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/unique_fd.h"
#include "kernels/device.h"
#include "transfer/media/shm/shared_memory.h"

namespace tandem {

// Shared memory of this process that its device reaches by itself. Move-only.
struct RelayMemory {
  // Errors as NewSharedMemory and Device::RegisterHost.
  static absl::StatusOr<RelayMemory> Create(Device& device, size_t bytes);

  UniqueFd file;
  Mapping mapping;
  DeviceBuffer registration;  // of the mapping, and destroyed before it
};

// The shared memory of a medium, taken when it is made: one area for each connection that may be
// made. Each area is a file of its own, so that a peer maps its area and nothing else.
// Thread: the loop's, except for size_bytes().
class AreaPool {
 public:
  // Errors as RelayMemory::Create.
  static absl::StatusOr<std::unique_ptr<AreaPool>> Create(Device& device, size_t area_bytes,
                                                          size_t count);

  // A free area; empty when all are taken.
  std::optional<size_t> Take();
  void GiveBack(size_t area) { free_.push_back(area); }

  const RelayMemory& operator[](size_t area) const { return areas_[area]; }
  size_t count() const { return areas_.size(); }
  size_t size_bytes() const { return areas_.size() * area_bytes_; }

 private:
  AreaPool(size_t area_bytes, std::vector<RelayMemory> areas);

  const size_t area_bytes_;
  const std::vector<RelayMemory> areas_;
  std::vector<size_t> free_;
};

}  // namespace tandem
