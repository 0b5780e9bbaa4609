#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <memory>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "transfer/media/medium.h"

namespace tandem {

// What moves between the two ends of a side channel of the test, one operation after the other, and
// what a test does to it. For one connection. Thread-safe.
class SideChannelBoard {
 public:
  using Bytes = std::vector<std::byte>;

  // What was announced does not arrive before Release.
  void HoldArrivals() { SetHeld(true); }
  void ReleaseArrivals() { SetHeld(false); }
  // How many payloads one Offer takes, 0: none for now; and how many bytes are enough for it.
  void SetRoom(size_t payloads, size_t enough_bytes = SIZE_MAX);
  // Where there is none: whether it is the peer that makes none.
  void BlamePeer();
  // What the next calls give.
  void FailOffers(absl::Status status);
  void FailExpects(absl::Status status);
  // How many operations were announced to the receiver.
  int expected() const;
  // The most bytes that one had.
  size_t largest_operation() const;
  // False when it took longer than a minute.
  bool AwaitExpected(int count) const;

  // Of the side channels.
  bool held() const;
  SideChannel::Room room() const;
  absl::Status Push(Bytes operation);
  // INVALID_ARGUMENT when the next operation is not of that size.
  absl::StatusOr<Bytes> Pop(size_t size);
  // An eventfd that rings when any of the above changed.
  int AddBell();

 private:
  void SetHeld(bool held);
  void Ring() const ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  mutable absl::Mutex mutex_;
  bool held_ ABSL_GUARDED_BY(mutex_) = false;
  SideChannel::Room room_ ABSL_GUARDED_BY(mutex_) = {.payloads = 64, .bytes = 1 << 20};
  int expected_ ABSL_GUARDED_BY(mutex_) = 0;
  size_t largest_ ABSL_GUARDED_BY(mutex_) = 0;
  absl::Status offers_ ABSL_GUARDED_BY(mutex_);
  absl::Status expects_ ABSL_GUARDED_BY(mutex_);
  std::deque<Bytes> operations_ ABSL_GUARDED_BY(mutex_);
  std::vector<int> bells_ ABSL_GUARDED_BY(mutex_);  // closed with the process
};

// Another medium whose channels have a side channel: operations over `board`, which outlives it.
std::unique_ptr<Medium> NewSideChannelMedium(std::unique_ptr<Medium> medium,
                                             SideChannelBoard& board);

}  // namespace tandem
