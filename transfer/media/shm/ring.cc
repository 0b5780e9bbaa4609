#include "transfer/media/shm/ring.h"

#include <sched.h>

#include <algorithm>
#include <cstring>

#include "base/status.h"

namespace tandem {
namespace {

SleepChange Set(std::atomic<uint32_t>& flag) {
  return flag.exchange(1) == 0 ? SleepChange::kArmed : SleepChange::kNone;
}

SleepChange Clear(std::atomic<uint32_t>& flag) {
  return flag.exchange(0) != 0 ? SleepChange::kDisarmed : SleepChange::kNone;
}

bool TakeFlag(std::atomic<uint32_t>& flag) { return flag.load() != 0 && flag.exchange(0) != 0; }

}  // namespace

absl::StatusOr<size_t> RingWriter::Room() {
  const uint64_t head = control_->head.load();
  if (tail_ - head > ring_.size()) {
    return FailedPrecondition("the reader's index {} cannot be: {} were written into a ring of {}",
                              head, tail_, ring_.size());
  }
  seen_head_ = head;
  return ring_.size() - (tail_ - head);
}

absl::StatusOr<size_t> RingWriter::Put(std::span<const std::byte> bytes) {
  size_t room = ring_.size() - (tail_ - seen_head_);
  if (room < bytes.size()) {
    ASSIGN_OR_RETURN(room, Room());
  }
  const size_t count = std::min(room, bytes.size());
  const size_t at = tail_ % ring_.size();
  const size_t first = std::min(count, ring_.size() - at);
  if (first > 0) std::memcpy(ring_.data() + at, bytes.data(), first);
  if (count > first) std::memcpy(ring_.data(), bytes.data() + first, count - first);
  tail_ += count;
  return count;
}

bool RingWriter::Publish() {
  published_ = tail_;
  control_->writer_core.store(sched_getcpu(), std::memory_order_relaxed);
  control_->tail.store(tail_);
  return TakeFlag(control_->reader_sleeps);
}

SleepChange RingWriter::Arm() { return Set(control_->writer_sleeps); }
SleepChange RingWriter::Disarm() { return Clear(control_->writer_sleeps); }

absl::StatusOr<size_t> RingReader::Waiting() {
  const uint64_t tail = control_->tail.load();
  if (tail - head_ > ring_.size()) {
    return FailedPrecondition("the writer's index {} cannot be: {} were read from a ring of {}",
                              tail, head_, ring_.size());
  }
  seen_tail_ = tail;
  return tail - head_;
}

absl::StatusOr<size_t> RingReader::Get(std::span<std::byte> bytes) {
  size_t waiting = seen_tail_ - head_;
  if (waiting < bytes.size()) {
    ASSIGN_OR_RETURN(waiting, Waiting());
  }
  const size_t count = std::min(waiting, bytes.size());
  const size_t at = head_ % ring_.size();
  const size_t first = std::min(count, ring_.size() - at);
  if (first > 0) std::memcpy(bytes.data(), ring_.data() + at, first);
  if (count > first) std::memcpy(bytes.data() + first, ring_.data(), count - first);
  head_ += count;
  return count;
}

bool RingReader::Release() {
  released_ = head_;
  control_->head.store(head_);
  const uint64_t waiting = control_->tail.load() - head_;
  return waiting <= ring_.size() / 2 && TakeFlag(control_->writer_sleeps);
}

SleepChange RingReader::Arm() { return Set(control_->reader_sleeps); }
SleepChange RingReader::Disarm() { return Clear(control_->reader_sleeps); }

}  // namespace tandem
