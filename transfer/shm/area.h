#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "transfer/shm/ring.h"

namespace tandem {

// Payloads in shared memory, behind one another and around again, each in one piece: one side
// writes them and names their places, the other reads them there and says how far it is done.
//
// A place is how many bytes went before it since the start, those that were left out at the end of
// the area included: it lies at place % size. State, in memory that both sides map:
//   released     places below are free again; written by the reader only
//   wake_at      with writer_sleeps: the writer wants to be woken once `released` is there
//   writer_sleeps
// Access and wake-ups as in transfer/shm/ring.h. Each side checks what it reads of the other's:
// whatever that writes there, nothing outside of the area is touched.
struct AreaControl {
  alignas(64) std::atomic<uint64_t> released;
  alignas(64) std::atomic<uint64_t> wake_at;
  std::atomic<uint32_t> writer_sleeps;
};

// Thread: its owner's.
class AreaWriter {
 public:
  // There is room where `piece_bytes` fit, in one piece: at most half of the area.
  AreaWriter(AreaControl& control, std::span<std::byte> area, size_t piece_bytes)
      : control_(&control), area_(area), piece_bytes_(piece_bytes) {}

  size_t piece_bytes() const { return piece_bytes_; }
  // The free bytes behind one another, none where that are fewer than a piece; looks again at the
  // control when so few are known of. FAILED_PRECONDITION when the reader's index cannot be.
  absl::StatusOr<size_t> Room();
  // Takes as many bytes, of those that Room gave; their place.
  uint64_t Take(size_t bytes);
  std::span<std::byte> At(uint64_t place, size_t bytes) const {
    return area_.subspan(place % area_.size(), bytes);
  }

  // Asks to be woken when there is room for a piece.
  SleepChange Arm();
  SleepChange Disarm();

 private:
  size_t to_end() const { return area_.size() - next_ % area_.size(); }
  // Where the next piece may begin: what is left at the end may be too little for one.
  uint64_t begin() const { return to_end() >= piece_bytes_ ? next_ : next_ + to_end(); }
  size_t KnownRoom() const;

  AreaControl* control_;
  std::span<std::byte> area_;
  size_t piece_bytes_;
  uint64_t next_ = 0;           // behind all that was taken
  uint64_t seen_released_ = 0;  // looked at again only when the room seems too small
};

// Thread: its owner's.
class AreaReader {
 public:
  AreaReader(AreaControl& control, std::span<const std::byte> area)
      : control_(&control), area_(area) {}

  // INVALID_ARGUMENT for a place that the writer cannot have filled.
  absl::StatusOr<std::span<const std::byte>> Find(uint64_t place, size_t bytes) const;
  // All below `place` is done with; true when the writer must be woken.
  [[nodiscard]] bool Release(uint64_t place);

 private:
  AreaControl* control_;
  std::span<const std::byte> area_;
  uint64_t released_ = 0;
};

}  // namespace tandem
