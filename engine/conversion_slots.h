#pragma once

#include <cstddef>
#include <cstdint>
#include <numeric>
#include <optional>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "kernels/device.h"

namespace tandem {

// Room for payloads on their way into blocks of another layout: a fixed number of equal slots in
// memory of the device that the pool lies in, set aside at the start. Of the host's no page is
// touched before it is used.
// Thread-compatible.
class ConversionSlots {
 public:
  ConversionSlots() = default;  // none
  // Errors as Device::Allocate.
  static absl::StatusOr<ConversionSlots> Create(Device& device, int32_t count, int64_t slot_bytes) {
    ASSIGN_OR_RETURN(DeviceBuffer memory, device.Allocate(static_cast<size_t>(count * slot_bytes)));
    return ConversionSlots(count, slot_bytes, std::move(memory));
  }

  bool all_taken() const { return free_.empty(); }
  std::optional<int32_t> Take() {
    if (free_.empty()) return std::nullopt;
    const int32_t slot = free_.back();
    free_.pop_back();
    return slot;
  }
  void GiveBack(int32_t slot) { free_.push_back(slot); }
  std::byte* At(int32_t slot) const { return memory_.data() + slot * slot_bytes_; }

 private:
  ConversionSlots(int32_t count, int64_t slot_bytes, DeviceBuffer memory)
      : slot_bytes_(slot_bytes), memory_(std::move(memory)), free_(static_cast<size_t>(count)) {
    std::iota(free_.begin(), free_.end(), 0);
  }

  int64_t slot_bytes_ = 0;
  DeviceBuffer memory_;
  std::vector<int32_t> free_;
};

}  // namespace tandem
