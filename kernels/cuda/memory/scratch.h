#pragma once

#include <cstddef>
#include <string_view>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "kernels/cuda/device/device.h"

namespace tandem::cuda {

// Device memory that calls work in. It grows when one needs more and stays where it is otherwise.
// Graphs keep its address: once one was recorded with it, growth does not free what it leaves.
// Calls that work in the same scratch must run one after the other.
// Thread: one at a time. `device` must outlive it.
class Scratch {
 public:
  // `what` names the memory's use in errors; a string literal.
  Scratch(CudaDevice& device, std::string_view what) : device_(device), what_(what) {}

  // Grows ahead of use. RESOURCE_EXHAUSTED as the device says.
  absl::Status Reserve(size_t bytes);
  // Memory of at least `bytes`, holding whatever was left there. FAILED_PRECONDITION when it would
  // have to grow while the stream records.
  absl::StatusOr<std::byte*> Get(CudaStream& stream, size_t bytes);
  // As Get, but the memory is zero at first; users leave it zero. Not while the stream records.
  absl::StatusOr<std::byte*> GetZeroed(CudaStream& stream, size_t bytes);
  // What the last Get gave.
  std::byte* data() const { return memory_.data(); }

 private:
  CudaDevice& device_;
  const std::string_view what_;
  DeviceBuffer memory_;
  bool zeroed_ = false;
  bool recorded_ = false;
  std::vector<DeviceBuffer> kept_;  // outgrown memory that recorded graphs may still use
};

}  // namespace tandem::cuda
