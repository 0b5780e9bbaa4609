#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <numeric>
#include <optional>
#include <vector>

namespace tandem {

// Room for payloads on their way into blocks of another layout: a fixed number of equal slots. The
// memory is set aside at the start, but no page of it is touched before it is used.
// Thread-compatible.
class ConversionSlots {
 public:
  ConversionSlots(int32_t count, int64_t slot_bytes)
      : slot_bytes_(slot_bytes),
        memory_(
            std::make_unique_for_overwrite<std::byte[]>(static_cast<size_t>(count * slot_bytes))),
        free_(static_cast<size_t>(count)) {
    std::iota(free_.begin(), free_.end(), 0);
  }

  std::optional<int32_t> Take() {
    if (free_.empty()) return std::nullopt;
    const int32_t slot = free_.back();
    free_.pop_back();
    return slot;
  }
  void GiveBack(int32_t slot) { free_.push_back(slot); }
  std::byte* At(int32_t slot) const { return memory_.get() + slot * slot_bytes_; }

 private:
  const int64_t slot_bytes_;
  const std::unique_ptr<std::byte[]> memory_;
  std::vector<int32_t> free_;
};

}  // namespace tandem
