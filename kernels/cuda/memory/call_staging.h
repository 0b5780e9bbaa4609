#pragma once

#include <cstddef>
#include <memory>
#include <span>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/device/device.h"
#include "kernels/staged_span.h"

namespace tandem::cuda {

// Takes the small arrays of single calls to the device, one copy per call. A call holds a slot of a
// ring until the kernels that read it have ended, so that calls of several streams do not meet.
// Thread: one at a time. `device` must outlive it.
class CallStaging {
 private:
  struct Slot {
    DeviceBuffer host;
    DeviceBuffer device;
    std::unique_ptr<Event> ended;  // null: free
  };

 public:
  // Room that Add takes for `count` elements.
  template <class T>
  static constexpr size_t RoomFor(size_t count) {
    return (count * sizeof(T) + kAlignment - 1) / kAlignment * kAlignment;
  }
  template <class T>
  static constexpr size_t RoomFor(const StagedSpan<T>& array) {
    return array.device() != nullptr ? 0 : RoomFor<T>(array.size());
  }

  // The arrays of one call: Add each, Upload, queue what reads them, End.
  class Call {
   public:
    // Where kernels will find the array; the caller may let it go.
    template <class T>
    const T* Add(std::span<const T> array) {
      return reinterpret_cast<const T*>(Place(std::as_bytes(array)));
    }
    // Adds the array unless it is on the device already; returns it with its place there.
    template <class T>
    StagedSpan<T> Add(const StagedSpan<T>& array) {
      if (array.device() != nullptr || array.empty()) return array;
      return {array.host(), Add(array.host())};
    }
    absl::Status Upload(CudaStream& stream);
    // Instead of Upload: copies the arrays to `device`, which keeps them beyond the call.
    absl::Status UploadTo(CudaStream& stream, std::byte* device);
    absl::Status End(CudaStream& stream);

   private:
    friend class CallStaging;
    explicit Call(Slot* slot) : slot_(slot) {}
    const std::byte* Place(std::span<const std::byte> bytes);

    Slot* slot_;  // null: the call has no arrays
    size_t used_ = 0;
  };

  // For `num_slots` calls that are under way at once.
  CallStaging(CudaDevice& device, size_t num_slots) : device_(device), slots_(num_slots) {}

  // Makes room for `bytes` in each slot. RESOURCE_EXHAUSTED as the device says.
  absl::Status Reserve(size_t bytes);
  // A call whose arrays take up to `room` bytes; waits for the oldest one when all slots are in
  // use. FAILED_PRECONDITION while the stream records, unless there is nothing to bring: a replay
  // would read what the slot holds by then.
  absl::StatusOr<Call> Begin(const CudaStream& stream, size_t room);

 private:
  static constexpr size_t kAlignment = 16;                // of vector loads
  static constexpr size_t kSlotBytes = size_t{64} << 10;  // at least

  absl::Status Grow(Slot& slot, size_t bytes);

  CudaDevice& device_;
  std::vector<Slot> slots_;
  size_t next_ = 0;
};

}  // namespace tandem::cuda
