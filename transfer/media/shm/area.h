#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transfer/media/shm/ring.h"

namespace tandem {

// An area of shared memory for payloads, which lie one after the other and around again, each in one
// piece. One side writes them and names their handles; the other side reads them and says how far it
// has got.
//
// A handle is the number of bytes before the payload since the start, including those left out at
// the end of the area; the payload lies at handle % size. The state lies in memory that both sides
// map:
//   released       handles below it are free again; only the reader writes it
//   wake_at        with writer_sleeps: the writer is to be woken once `released` has reached it
//   writer_sleeps  1: the writer waits for room
// Memory order and wake-ups are as in transfer/media/shm/ring.h. Each side checks what the other
// has written, so that whatever a broken peer writes there, nothing outside of the area is touched.
struct AreaControl {
  alignas(64) std::atomic<uint64_t> released;
  alignas(64) std::atomic<uint64_t> wake_at;
  std::atomic<uint32_t> writer_sleeps;
};

// Thread: its owner's.
class AreaWriter {
 public:
  // There is room when `piece_bytes`, at most half of the area, are free in one piece.
  AreaWriter(AreaControl& control, std::span<std::byte> area, size_t piece_bytes)
      : control_(&control), area_(area), piece_bytes_(piece_bytes) {}

  size_t piece_bytes() const { return piece_bytes_; }
  // The number of contiguous free bytes, or 0 when they are fewer than a piece. Reads the control
  // again only when the known room is too small. FAILED_PRECONDITION for an impossible index of the
  // reader.
  absl::StatusOr<size_t> Room();
  // Takes bytes that Room has counted, and returns their handle.
  uint64_t Take(size_t bytes);
  std::span<std::byte> At(uint64_t handle, size_t bytes) const {
    return area_.subspan(handle % area_.size(), bytes);
  }

  // Asks to be woken when there is room for a piece.
  SleepChange Arm();
  SleepChange Disarm();

 private:
  size_t to_end() const { return area_.size() - next_ % area_.size(); }
  // Where the next piece may begin: at the start when the rest at the end is too small for one.
  uint64_t begin() const { return to_end() >= piece_bytes_ ? next_ : next_ + to_end(); }
  size_t KnownRoom() const;

  AreaControl* control_;
  std::span<std::byte> area_;
  size_t piece_bytes_;
  uint64_t next_ = 0;           // the end of the latest payload
  uint64_t seen_released_ = 0;  // read again only when the room seems too small
};

// Thread: its owner's.
class AreaReader {
 public:
  AreaReader(AreaControl& control, std::span<const std::byte> area)
      : control_(&control), area_(area) {}

  // INVALID_ARGUMENT for a handle that the writer cannot have filled.
  absl::StatusOr<std::span<const std::byte>> Find(uint64_t handle, size_t bytes) const;
  // Frees everything below `handle`; true when the writer must be woken.
  [[nodiscard]] bool Release(uint64_t handle);

 private:
  AreaControl* control_;
  std::span<const std::byte> area_;
  uint64_t released_ = 0;
};

}  // namespace tandem
