#pragma once

#include <memory>
#include <span>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "kernels/device.h"

namespace tandem {

// Where the payloads of a test lie: each in an allocation of its own, which is kept as long as
// this, of a device or, without one, of the heap; or all in one that other processes can open.
// Thread-safe.
class PayloadMemory {
 public:
  explicit PayloadMemory(Device* device = nullptr);
  // All payloads together have at most `shared_bytes`, of Device::AllocateShared.
  PayloadMemory(Device& device, size_t shared_bytes);

  // Empty unless it was made with a size.
  std::span<const std::byte> shared() const { return shared_.bytes(); }

  std::span<std::byte> New(size_t size);
  // The host's hands, or copies of the device that are waited for.
  void Write(std::span<std::byte> at, std::span<const std::byte> bytes);
  std::vector<std::byte> Read(std::span<const std::byte> at) const;

 private:
  void Copy(std::span<std::byte> dst, std::span<const std::byte> src) const
      ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  Device* const device_;
  mutable absl::Mutex mutex_;
  const std::unique_ptr<Stream> stream_ ABSL_PT_GUARDED_BY(mutex_);
  const DeviceBuffer shared_;
  size_t shared_used_ ABSL_GUARDED_BY(mutex_) = 0;
  std::vector<DeviceBuffer> of_device_ ABSL_GUARDED_BY(mutex_);
  std::vector<std::unique_ptr<std::byte[]>> of_host_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem
