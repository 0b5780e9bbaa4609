#pragma once

#include <memory>
#include <string>

#include "kernels/cuda/device/stream.h"
#include "kernels/cuda/launchers.h"
#include "kernels/cuda/memory/shared_memory.h"
#include "kernels/device.h"

namespace tandem::cuda {

class CudaDevice final : public Device {
 public:
  // Opens GPU `index`, which must exist and be one that this build has kernels for. Launches use
  // the kernels for at most `most_compute_capability`; 0: for the device's own.
  static absl::StatusOr<std::unique_ptr<CudaDevice>> Open(int index,
                                                          int most_compute_capability = 0);

  std::string name() const override { return name_; }
  bool is_host() const override { return false; }
  bool can_record_graphs() const override { return true; }
  absl::StatusOr<DeviceMemory> Memory() const override;
  absl::StatusOr<DeviceBuffer> Allocate(size_t bytes) override;
  absl::StatusOr<DeviceBuffer> AllocateHost(size_t bytes) override;
  absl::StatusOr<DeviceBuffer> RegisterHost(std::span<std::byte> memory) override;
  absl::StatusOr<std::unique_ptr<Stream>> NewStream() override;
  absl::StatusOr<std::unique_ptr<Stream>> NewComputeStream() override;
  bool can_share() const override { return sharing_ != Sharing::kNone; }
  absl::StatusOr<DeviceBuffer> AllocateShared(size_t bytes) override;
  absl::StatusOr<MemoryHandle> Share(std::span<const std::byte> memory) override;
  absl::StatusOr<DeviceBuffer> OpenShared(const MemoryHandle& handle) override;

  // What launches on this device need to know of it, without a stream.
  const LaunchTarget& target() const { return target_; }
  Sharing sharing() const { return sharing_; }

 private:
  CudaDevice(int index, const LaunchTarget& target, Sharing sharing);

  absl::Status OutOfMemory(size_t bytes) const;
  // Priorities are numbers of cudaDeviceGetStreamPriorityRange; 0 is the usual one.
  absl::StatusOr<std::unique_ptr<Stream>> NewStreamOf(int priority);

  const int index_;
  const std::string name_;
  const LaunchTarget target_;
  const Sharing sharing_;
  const std::shared_ptr<EventPool> events_ = std::make_shared<EventPool>();
};

}  // namespace tandem::cuda
