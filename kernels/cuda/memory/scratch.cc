#include "kernels/cuda/memory/scratch.h"

#include <utility>

#include "base/status.h"
#include "kernels/cuda/device/cuda_status.h"

namespace tandem::cuda {

absl::Status Scratch::Reserve(size_t bytes) {
  if (bytes <= memory_.size()) return absl::OkStatus();
  // Freeing waits for the device, so nothing that is queued uses the old memory any more.
  if (recorded_) {
    kept_.push_back(std::move(memory_));
  }
  memory_ = DeviceBuffer();
  recorded_ = false;
  zeroed_ = false;
  absl::StatusOr<DeviceBuffer> grown = device_.Allocate(bytes);
  if (!grown.ok()) return Annotate(grown.status(), what_);
  memory_ = *std::move(grown);
  return absl::OkStatus();
}

absl::StatusOr<std::byte*> Scratch::Get(CudaStream& stream, size_t bytes) {
  if (stream.recording() && bytes > memory_.size()) {
    return FailedPrecondition(
        "{} needs {} bytes and has {}: it cannot grow in a recording; reserve for the largest call "
        "before",
        what_, bytes, memory_.size());
  }
  RETURN_IF_ERROR(Reserve(bytes));
  recorded_ = recorded_ || stream.recording();
  return memory_.data();
}

absl::StatusOr<std::byte*> Scratch::GetZeroed(CudaStream& stream, size_t bytes) {
  ASSIGN_OR_RETURN(std::byte* const data, Get(stream, bytes));
  if (!std::exchange(zeroed_, true) && data != nullptr) {
    RETURN_IF_CUDA_ERROR(cudaMemsetAsync(data, 0, memory_.size(), stream.handle()), what_);
  }
  return data;
}

}  // namespace tandem::cuda
