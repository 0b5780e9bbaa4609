#pragma once

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/statusor.h"

namespace tandem {

// A stream of bytes through shared memory with one writer and one reader, usually in two processes.
//
// The state lies in memory that both sides map:
//   tail           bytes ever published; only the writer writes it
//   head           bytes ever consumed; only the reader writes it
//   reader_sleeps  1: the reader found nothing and waits to be woken
//   writer_sleeps  1: the writer found no room and waits to be woken
//   writer_core    the core on which the writer last published; only a hint
// Both indices only grow, and `tail - head` bytes wait, at most the ring's size. Each side keeps its
// own index privately and never reads it back. It checks the other side's index, so that whatever a
// broken peer writes there, nothing outside of the ring is touched.
//
// No wake-up is lost, because the first four are accessed in one total order (seq_cst). A side that
// is about to sleep sets its flag and then reads the index again; the other side moves the index and
// then reads the flag. Whichever comes second in that order sees what the first wrote: either the
// sleeper sees the new index and stays awake, or the other side sees the flag and wakes it. The flag
// is cleared by an exchange, so exactly one side clears it, and each setting causes at most one
// wake-up. The cost is two ordered stores for each published piece; neither side spins.
struct RingControl {
  alignas(64) std::atomic<uint64_t> tail;
  alignas(64) std::atomic<uint64_t> head;
  alignas(64) std::atomic<uint32_t> reader_sleeps;
  alignas(64) std::atomic<uint32_t> writer_sleeps;
  alignas(64) std::atomic<int32_t> writer_core;
};
static_assert(std::atomic<uint64_t>::is_always_lock_free &&
              std::atomic<uint32_t>::is_always_lock_free);

// The piece that is published or released at once, so that both sides copy at the same time. It is a
// quarter of the ring: a writer that waits for half of the ring would wait for ever if room came
// back in larger pieces.
constexpr size_t PieceBytes(size_t ring_bytes) { return ring_bytes / 4; }

enum class SleepChange : uint8_t {
  kNone,
  kArmed,     // the other side owes a wake-up
  kDisarmed,  // it owes none any more
};

// Thread: its owner's. FAILED_PRECONDITION for an impossible index of the other side.
class RingWriter {
 public:
  RingWriter(RingControl& control, std::span<std::byte> ring) : control_(&control), ring_(ring) {}

  // Appends as many of `bytes` as fit, and returns how many.
  absl::StatusOr<size_t> Put(std::span<const std::byte> bytes);
  // Bytes that were put but not published. Publish is due when they reach piece_bytes().
  size_t pending() const { return tail_ - published_; }
  size_t piece_bytes() const { return PieceBytes(ring_.size()); }
  // Shows the reader what was put; true when the reader must be woken.
  [[nodiscard]] bool Publish();

  SleepChange Arm();
  SleepChange Disarm();
  // Whether the reader owes a wake-up.
  bool armed() const { return control_->writer_sleeps.load() != 0; }
  // The number of bytes that fit now.
  absl::StatusOr<size_t> Room();

 private:
  RingControl* control_;
  std::span<std::byte> ring_;
  uint64_t tail_ = 0;
  uint64_t published_ = 0;
  uint64_t seen_head_ = 0;  // read again only when the room seems too small
};

// Thread: its owner's. FAILED_PRECONDITION for an impossible index of the other side.
class RingReader {
 public:
  RingReader(RingControl& control, std::span<std::byte> ring) : control_(&control), ring_(ring) {}

  // Copies out as many of the next bytes as have come and fit, and returns how many.
  absl::StatusOr<size_t> Get(std::span<std::byte> bytes);
  // Bytes whose room was not given back yet. Release is due when they reach piece_bytes().
  size_t pending() const { return head_ - released_; }
  size_t piece_bytes() const { return PieceBytes(ring_.size()); }
  // Gives the room back; true when the writer must be woken, because it sleeps and half of the ring
  // is free. Waking it earlier would wake it for every few bytes.
  [[nodiscard]] bool Release();

  SleepChange Arm();
  SleepChange Disarm();
  // The number of bytes that wait now.
  absl::StatusOr<size_t> Waiting();
  int32_t writer_core() const { return control_->writer_core.load(std::memory_order_relaxed); }

 private:
  RingControl* control_;
  std::span<std::byte> ring_;
  uint64_t head_ = 0;
  uint64_t released_ = 0;
  uint64_t seen_tail_ = 0;  // read again only when too little seems to wait
};

}  // namespace tandem
