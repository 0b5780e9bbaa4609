#pragma once

#include <array>
#include <cstddef>
#include <memory>
#include <span>

#include "absl/status/statusor.h"
#include "base/check.h"
#include "kernels/device.h"
#include "kernels/staged_span.h"

namespace tandem {

// Puts the small arrays of a step where kernels find them, in one copy: gathered in a ring of
// page-locked buffers, so that the host can write the next step's while this one's are under way,
// and copied to one place of the device, which work queued later on the same stream reads. Arrays
// that are added in the same order with the same sizes lie at the same addresses in every step,
// which recorded graphs count on. On a device that is the host, nothing is copied.
// Thread: one at a time. `device` must outlive it.
class StepStaging {
 public:
  // RESOURCE_EXHAUSTED as the device says.
  static absl::StatusOr<std::unique_ptr<StepStaging>> Create(Device& device, size_t capacity_bytes);

  // Starts the next step's arrays; waits only when the ring's oldest copy has not ended.
  absl::Status Begin();
  // Adds an array, which the caller keeps until the end of the step.
  template <class T>
  StagedSpan<T> Add(std::span<const T> array) {
    return {array, reinterpret_cast<const T*>(Place(std::as_bytes(array)))};
  }
  // Queues the copy of all that was added since Begin.
  absl::Status Upload(Stream& stream);

 private:
  static constexpr size_t kRing = 2;

  struct Slot {
    DeviceBuffer host;
    std::unique_ptr<Event> copied;  // null: free
  };

  explicit StepStaging(size_t capacity_bytes) : capacity_bytes_(capacity_bytes) {}
  const std::byte* Place(std::span<const std::byte> bytes);

  const size_t capacity_bytes_;
  std::array<Slot, kRing> ring_;
  size_t current_ = 0;
  size_t used_ = 0;
  DeviceBuffer device_memory_;  // empty where the device is the host
};

}  // namespace tandem
