#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/device.h"

namespace tandem {

class StagingPool;

// A slot of a pool, which its destructor gives back. May hold none. Move-only.
class StagedSlot {
 public:
  StagedSlot() = default;
  StagedSlot(StagedSlot&& other) noexcept { *this = std::move(other); }
  StagedSlot& operator=(StagedSlot&& other) noexcept {
    std::swap(pool_, other.pool_);
    std::swap(index_, other.index_);
    return *this;
  }
  ~StagedSlot();

  explicit operator bool() const { return pool_ != nullptr; }
  // The slot has the pool's payload_bytes() bytes.
  std::span<std::byte> bytes() const;

 private:
  friend class StagingPool;
  StagedSlot(StagingPool* pool, uint32_t index) : pool_(pool), index_(index) {}

  StagingPool* pool_ = nullptr;
  uint32_t index_ = 0;
};

// Page-locked memory through which payloads in the memory of a device get to the wire and back: slots
// of equal size, and the stream that copies from and into them. All is set aside at the start.
// Thread: one at a time, the loop's once that runs.
class StagingPool {
 public:
  // INVALID_ARGUMENT where `total_bytes` hold fewer than two payloads; RESOURCE_EXHAUSTED where
  // the device has not so much page-locked memory.
  static absl::StatusOr<std::unique_ptr<StagingPool>> Create(Device& device, size_t payload_bytes,
                                                             size_t total_bytes);

  size_t payload_bytes() const { return payload_bytes_; }  // the largest payload of a slot
  size_t buffer_bytes() const { return memory_.size(); }
  size_t num_free() const { return free_.size(); }
  size_t num_slots() const { return num_slots_; }

  // Empty when none is free.
  StagedSlot Take();

  // Queues a copy, one side of which is a slot. Both sides must stay as they are until Synchronize
  // returned.
  absl::Status Copy(std::span<std::byte> dst, std::span<const std::byte> src);
  // Waits for the queued copies. Once it returned they read and write nothing any more, even if
  // one has failed.
  absl::Status Synchronize();

 private:
  friend class StagedSlot;
  StagingPool(std::string device, size_t payload_bytes, DeviceBuffer memory,
              std::unique_ptr<Stream> stream);

  void GiveBack(uint32_t index) { free_.push_back(index); }
  absl::Status Failed(const absl::Status& status) const;

  const std::string device_;  // the device's name
  const size_t payload_bytes_;
  const size_t stride_bytes_;
  const DeviceBuffer memory_;
  const size_t num_slots_;
  const std::unique_ptr<Stream> stream_;
  std::vector<uint32_t> free_;
};

}  // namespace tandem
