#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

namespace tandem {

// A stream of bytes through shared memory: one writer, one reader, possibly in two processes.
//
// State, in memory that both sides map:
//   tail           bytes ever published; written by the writer only
//   head           bytes ever consumed; written by the reader only
//   reader_sleeps  1: the reader found nothing and wants to be woken
//   writer_sleeps  1: the writer found no room and wants to be woken
//   writer_core    where the writer ran when it last published; a hint that nothing rests on
// `tail - head` is what waits, at most the ring's size; both only grow. Each side keeps its own
// index privately and never reads it back. What it reads of the other's is checked: whatever the
// other process writes there, nothing outside of the ring is touched.
//
// Why no wake-up is lost: the first four are accessed in one total order (seq_cst). The sleeper
// sets its flag and then looks at the index again; the other side moves the index and then looks at
// the flag. Whichever comes second in that order sees what the first wrote: either the sleeper sees
// the new index and stays up, or the other side sees the flag and wakes it. Clearing the flag is an
// exchange, so that exactly one of the two clears it, and one setting is one wake-up at the most.
// Cost: two ordered stores per published piece; nothing spins.
struct RingControl {
  alignas(64) std::atomic<uint64_t> tail;
  alignas(64) std::atomic<uint64_t> head;
  alignas(64) std::atomic<uint32_t> reader_sleeps;
  alignas(64) std::atomic<uint32_t> writer_sleeps;
  alignas(64) std::atomic<int32_t> writer_core;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<uint32_t>::is_always_lock_free);

// What is shown to the other side at once, so that both sides copy at the same time. Room is given
// back in whole pieces only; a quarter of the ring, so that a writer who waits for half of it does
// not wait for ever.
constexpr size_t PieceBytes(size_t ring_bytes) { return ring_bytes / 4; }

// How the flag of a side changed.
enum class SleepChange : uint8_t {
  kNone,
  kArmed,     // the other side owes a wake-up
  kDisarmed,  // it owes none any more
};

// Thread: its owner's. FAILED_PRECONDITION when the other side's index cannot be.
class RingWriter {
 public:
  RingWriter(RingControl& control, std::span<std::byte> ring) : control_(&control), ring_(ring) {}

  // Copies what fits of `bytes` behind what is there; how many.
  absl::StatusOr<size_t> Put(std::span<const std::byte> bytes);
  // Put, and not yet published: at most piece_bytes() before Publish is due.
  size_t pending() const { return tail_ - published_; }
  size_t piece_bytes() const { return PieceBytes(ring_.size()); }
  // Shows what was put to the reader; true when that must be woken.
  [[nodiscard]] bool Publish();

  SleepChange Arm();
  SleepChange Disarm();
  // Whether the reader owes a wake-up.
  bool armed() const { return control_->writer_sleeps.load() != 0; }
  // How much fits now.
  absl::StatusOr<size_t> Room();

 private:
  RingControl* control_;
  std::span<std::byte> ring_;
  uint64_t tail_ = 0;
  uint64_t published_ = 0;
  uint64_t seen_head_ = 0;  // looked at again only when the room seems too small
};

// Thread: its owner's. FAILED_PRECONDITION when the other side's index cannot be.
class RingReader {
 public:
  RingReader(RingControl& control, std::span<std::byte> ring) : control_(&control), ring_(ring) {}

  // Copies the next bytes out, as many as there are and fit; how many.
  absl::StatusOr<size_t> Get(std::span<std::byte> bytes);
  // Got, and the room not yet given back: at most piece_bytes() before Release is due.
  size_t pending() const { return head_ - released_; }
  size_t piece_bytes() const { return PieceBytes(ring_.size()); }
  // Gives the room back; true when the writer must be woken: it sleeps, and half of the ring is
  // free. Before, it would be woken for every few bytes.
  [[nodiscard]] bool Release();

  SleepChange Arm();
  SleepChange Disarm();
  // How much can be got now.
  absl::StatusOr<size_t> Waiting();
  int32_t writer_core() const { return control_->writer_core.load(std::memory_order_relaxed); }

 private:
  RingControl* control_;
  std::span<std::byte> ring_;
  uint64_t head_ = 0;
  uint64_t released_ = 0;
  uint64_t seen_tail_ = 0;  // looked at again only when too little seems to wait
};

}  // namespace tandem
