#pragma once

#include <algorithm>
#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <optional>
#include <span>

namespace tandem::codec {

// Writes the payload of a frame in parts: first what each row has of a known size, in the order of
// rows; then a stream of bits, of which a row has as many as it needs, behind its size in bytes
// (u32); at the end the exponents that have no rank, the first of them last.
//
// The bits are written from the front and the exponents from the back, until Finish joins them.
class RowWriter {
 public:
  RowWriter(std::span<std::byte> out, size_t fixed_bytes)
      : out_(out),
        fixed_end_(fixed_bytes),
        bits_at_(fixed_bytes + sizeof(uint32_t)),
        escapes_at_(out.size()) {}

  // Whether there is room for any next row: it takes at most 64 exponents, and 6 bits for each
  // channel.
  bool HasRoomForRow() const { return bits_at_ + kMostOfRow <= escapes_at_; }
  std::byte* NextFixed(size_t bytes) {
    std::byte* const at = out_.data() + fixed_at_;
    fixed_at_ += bytes;
    return at;
  }
  // Appends `count` bits, at most 64, to the stream. `bits` has no bit set beyond its lowest
  // `count`.
  void PutBits(uint64_t bits, int count) {
    pending_ |= bits << num_pending_;
    if (num_pending_ + count < 64) {
      num_pending_ += count;
      return;
    }
    std::memcpy(out_.data() + bits_at_, &pending_, sizeof(pending_));
    bits_at_ += sizeof(pending_);
    const int written = 64 - num_pending_;
    pending_ = written < 64 ? bits >> written : 0;
    num_pending_ += count - 64;
  }
  // Appends the exponents of those channels that have a bit in `escaped`. At least four bytes are
  // written, of which the next row overwrites what is too much: the number of escapes is random, and
  // a branch for each of them would be mispredicted. There must be room for a row.
  void PutEscapes(const uint8_t (&exponents)[64], uint64_t escaped) {
    std::byte* const end = out_.data() + escapes_at_;
    escapes_at_ -= static_cast<size_t>(std::popcount(escaped));
    const auto put = [&](std::byte* at) {
      *at = std::byte{exponents[std::countr_zero(escaped) % 64]};
      escaped &= escaped - 1;
    };
    for (ptrdiff_t i = 1; i <= 4; ++i) put(end - i);
    std::byte* at = end - 4;
    while (escaped != 0) put(--at);
  }

  size_t bits_written() const {
    return 8 * (bits_at_ - fixed_end_ - sizeof(uint32_t)) + static_cast<size_t>(num_pending_);
  }
  size_t escapes_written() const { return out_.size() - escapes_at_; }

  // Joins the parts of the payload and returns its size.
  size_t Finish() {
    const auto last = static_cast<size_t>(num_pending_ + 7) / 8;
    std::memcpy(out_.data() + bits_at_, &pending_, last);
    bits_at_ += last;
    const auto bits = static_cast<uint32_t>(bits_at_ - fixed_end_ - sizeof(uint32_t));
    std::memcpy(out_.data() + fixed_end_, &bits, sizeof(bits));
    const size_t escapes = out_.size() - escapes_at_;
    std::memmove(out_.data() + bits_at_, out_.data() + escapes_at_, escapes);
    return bits_at_ + escapes;
  }

 private:
  static constexpr size_t kMostOfRow = 64 + 6 * sizeof(uint64_t) + 2 * sizeof(uint64_t);

  const std::span<std::byte> out_;
  const size_t fixed_end_;
  size_t fixed_at_ = 0;
  size_t bits_at_;
  size_t escapes_at_;
  uint64_t pending_ = 0;
  int num_pending_ = 0;  // below 64
};

// Reads a payload that a RowWriter wrote. Whatever the payload lacks reads as 0 and makes the
// payload invalid.
class RowReader {
 public:
  // Creates a reader. Nothing when the payload is too short for its parts.
  static std::optional<RowReader> Of(std::span<const std::byte> payload, size_t fixed_bytes) {
    uint32_t bits = 0;
    if (payload.size() < fixed_bytes + sizeof(bits)) return std::nullopt;
    std::memcpy(&bits, payload.data() + fixed_bytes, sizeof(bits));
    const size_t bits_at = fixed_bytes + sizeof(bits);
    if (payload.size() - bits_at < bits) return std::nullopt;
    return RowReader(payload, bits_at, bits_at + bits);
  }

  const std::byte* NextFixed(size_t bytes) {
    const std::byte* const at = payload_.data() + fixed_at_;
    fixed_at_ += bytes;
    return at;
  }
  uint64_t TakeBits(int count) {
    if (bit_at_ + static_cast<size_t>(count) > bit_end_) {
      valid_ = false;
      return 0;
    }
    const size_t byte = bit_at_ / 8;
    const auto shift = static_cast<int>(bit_at_ % 8);
    uint64_t bits = 0;
    if (byte + sizeof(bits) <= payload_.size()) {
      std::memcpy(&bits, payload_.data() + byte, sizeof(bits));
    } else {
      std::memcpy(&bits, payload_.data() + byte, payload_.size() - byte);
    }
    bits >>= shift;
    if (shift + count > 64) {
      bits |= std::to_integer<uint64_t>(payload_[byte + sizeof(bits)]) << (64 - shift);
    }
    bit_at_ += static_cast<size_t>(count);
    return count < 64 ? bits & ((uint64_t{1} << count) - 1) : bits;
  }
  uint8_t TakeEscape() {
    if (escapes_end_ == bit_end_ / 8) {
      valid_ = false;
      return 0;
    }
    return std::to_integer<uint8_t>(payload_[--escapes_end_]);
  }
  // The position of the next bit of the stream, in bits from the beginning of the payload.
  size_t bit_position() const { return bit_at_; }
  size_t escapes_left() const { return escapes_end_ - bit_end_ / 8; }
  // Whether the payload had all that was taken so far.
  bool valid() const { return valid_; }
  // Whether the payload had all that was taken from it, and nothing else.
  bool Ended() {
    const auto left = static_cast<int>(std::min<size_t>(bit_end_ - bit_at_, 8));
    return left < 8 && TakeBits(left) == 0 && valid_ && escapes_end_ == bit_end_ / 8;
  }

 private:
  RowReader(std::span<const std::byte> payload, size_t bits_at, size_t bits_end)
      : payload_(payload),
        bit_at_(8 * bits_at),
        bit_end_(8 * bits_end),
        escapes_end_(payload.size()) {}

  std::span<const std::byte> payload_;
  size_t fixed_at_ = 0;
  size_t bit_at_;  // in bits from the beginning of the payload
  size_t bit_end_;
  size_t escapes_end_;
  bool valid_ = true;
};

}  // namespace tandem::codec
