#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>

namespace tandem::codec {

// Writes a stream of bits behind its size in bytes (u32), as RowReader reads it. What does not fit
// is dropped, and Finish says so.
class BitWriter {
 public:
  explicit BitWriter(std::span<std::byte> out) : out_(out) {}

  // Appends `count` bits, at most 64. `bits` has no bit set beyond its lowest `count`.
  void PutBits(uint64_t bits, int count) {
    pending_ |= bits << num_pending_;
    if (num_pending_ + count < 64) {
      num_pending_ += count;
      return;
    }
    if (at_ + sizeof(pending_) <= out_.size()) {
      std::memcpy(out_.data() + at_, &pending_, sizeof(pending_));
    }
    at_ += sizeof(pending_);
    const int written = 64 - num_pending_;
    pending_ = written < 64 ? bits >> written : 0;
    num_pending_ += count - 64;
  }

  size_t bits_written() const {
    return 8 * (at_ - sizeof(uint32_t)) + static_cast<size_t>(num_pending_);
  }

  // Writes the last bits and the size. Returns the size of all that was written, or 0 when it did
  // not fit.
  size_t Finish() {
    const auto last = static_cast<size_t>(num_pending_ + 7) / 8;
    if (at_ + last > out_.size()) return 0;
    std::memcpy(out_.data() + at_, &pending_, last);
    at_ += last;
    const auto bytes = static_cast<uint32_t>(at_ - sizeof(uint32_t));
    std::memcpy(out_.data(), &bytes, sizeof(bytes));
    return at_;
  }

 private:
  const std::span<std::byte> out_;
  size_t at_ = sizeof(uint32_t);
  uint64_t pending_ = 0;
  int num_pending_ = 0;  // below 64
};

}  // namespace tandem::codec
