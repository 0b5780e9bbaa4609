#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tandem {

// An input as a program: bytes that say what is done next, and with what. What is missing at the
// end is 0.
class Steps {
 public:
  explicit Steps(std::span<const uint8_t> bytes) : bytes_(bytes) {}

  bool done() const { return bytes_.empty(); }
  // A number of `size` bytes, at most 8, little-endian.
  uint64_t Take(size_t size) {
    uint64_t value = 0;
    const std::span<const uint8_t> taken = TakeBytes(size);
    if (!taken.empty()) std::memcpy(&value, taken.data(), taken.size());
    return value;
  }
  // The next `size` bytes, or as many as are left.
  std::span<const uint8_t> TakeBytes(size_t size) {
    const std::span<const uint8_t> taken = bytes_.first(std::min(size, bytes_.size()));
    bytes_ = bytes_.subspan(taken.size());
    return taken;
  }

 private:
  std::span<const uint8_t> bytes_;
};

}  // namespace tandem
