#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <span>

#include "base/check.h"

namespace tandem {

// A ring buffer of payloads that a peer reads. Each payload is contiguous, and its handle is its
// offset in the buffer.
// Thread: its owner's.
class Area {
 public:
  // The area has room while `piece_bytes`, at most half of it, are free in one piece.
  Area(std::span<std::byte> memory, size_t piece_bytes)
      : memory_(memory), piece_bytes_(piece_bytes) {}

  size_t piece_bytes() const { return piece_bytes_; }
  // The number of contiguous free bytes, or 0 when they are fewer than a piece.
  size_t Room() const {
    const size_t room = Free(piece_bytes_).size();
    return room >= piece_bytes_ ? room : 0;
  }
  // Takes bytes that Room has counted, for one payload, and returns their handle.
  uint64_t Take(size_t bytes) {
    const Piece free = Free(bytes);
    TANDEM_CHECK(bytes > 0 && bytes <= free.size(), "taken without room");
    taken_.push_back({.begin = free.begin, .end = free.begin + bytes});
    taken_bytes_ += bytes;
    return free.begin;
  }
  std::span<std::byte> At(uint64_t handle, size_t bytes) const {
    return memory_.subspan(handle, bytes);
  }
  // Frees the payloads that were taken before the latest `bytes` bytes of payload.
  void KeepLatest(uint64_t bytes) {
    while (!taken_.empty() && taken_bytes_ - taken_.front().size() >= bytes) {
      taken_bytes_ -= taken_.front().size();
      taken_.pop_front();
    }
  }

 private:
  // Contiguous bytes of the area, which a payload occupies or which are free.
  struct Piece {
    size_t begin = 0;
    size_t end = 0;
    size_t size() const { return end - begin; }
  };

  // The free bytes behind the latest payload, or those at the start of the area when fewer than
  // `bytes` are free at its end.
  Piece Free(size_t bytes) const {
    if (taken_.empty()) return {.begin = 0, .end = memory_.size()};
    const size_t oldest = taken_.front().begin;
    const size_t latest = taken_.back().end;
    if (latest <= oldest) return {.begin = latest, .end = oldest};
    if (memory_.size() - latest >= bytes) return {.begin = latest, .end = memory_.size()};
    return {.begin = 0, .end = oldest};
  }

  std::span<std::byte> memory_;
  size_t piece_bytes_;
  std::deque<Piece> taken_;   // the oldest payload first; none has 0 bytes
  uint64_t taken_bytes_ = 0;  // bytes of the payloads in taken_
};

}  // namespace tandem
