#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "kernels/device.h"

namespace tandem {

class HostPool;

// A lease of one slab, which the destructor returns. Move-only.
// Thread: engine; while a copy is in flight its bytes belong to the copier.
class HostSlab {
 public:
  HostSlab() = default;
  HostSlab(HostSlab&& other) noexcept { *this = std::move(other); }
  HostSlab& operator=(HostSlab&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(index_, other.index_);
    return *this;
  }
  ~HostSlab();

  std::span<std::byte> bytes() const;

 private:
  friend class HostPool;
  HostSlab(HostPool* pool, int32_t index) : pool_(pool), index_(index) {}

  HostPool* pool_ = nullptr;
  int32_t index_ = 0;
};

// Host memory in slabs of one size. All of it is populated and locked at start, so that nothing is
// allocated later and the budget is never exceeded. The memory of a GPU device is page-locked by
// the driver; that of the CPU device is locked where the system allows it. Thread: engine. The pool
// must outlive its leases.
class HostPool {
 public:
  // Makes as many slabs as fit into `budget_bytes`. INVALID_ARGUMENT when none fits;
  // RESOURCE_EXHAUSTED when the host lacks the memory.
  static absl::StatusOr<std::unique_ptr<HostPool>> Create(Device& device, int64_t budget_bytes,
                                                          size_t slab_bytes);
  ~HostPool();
  HostPool(const HostPool&) = delete;
  HostPool& operator=(const HostPool&) = delete;

  // Leases a slab. Empty when all slabs are leased.
  std::optional<HostSlab> Take();

  size_t slab_bytes() const { return slab_bytes_; }
  int32_t num_slabs() const { return static_cast<int32_t>(used_.size()); }
  int32_t num_free() const { return static_cast<int32_t>(free_.size()); }

  // Checks that every slab is either free or leased exactly once. INTERNAL names the first that is
  // not.
  absl::Status CheckInvariants() const;

 private:
  friend class HostSlab;
  HostPool(DeviceBuffer memory, size_t slab_bytes, int32_t num_slabs);

  const DeviceBuffer memory_;
  const size_t slab_bytes_;
  std::vector<bool> used_;
  std::vector<int32_t> free_;
};

}  // namespace tandem
