#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "base/clock.h"

namespace tandem {

// Many producers, one consumer, at most `capacity` messages: the inbox of a thread.
// Thread-safe. A full queue refuses (the caller answers RESOURCE_EXHAUSTED); it never blocks a
// producer.
template <typename T>
class BoundedQueue {
 public:
  explicit BoundedQueue(size_t capacity) : capacity_(capacity) {}

  // False when full or closed; `item` is then untouched.
  [[nodiscard]] bool TryPush(T&& item) {
    absl::MutexLock lock(&mutex_);
    if (closed_ || items_.size() >= capacity_) return false;
    Append(std::move(item));
    return true;
  }

  // Past the capacity too: for messages that free resources (cancel, release, completion), which
  // must not be lost to overload and whose number is bounded by what was admitted. False when
  // closed.
  bool PushAlways(T&& item) {
    absl::MutexLock lock(&mutex_);
    if (closed_) return false;
    Append(std::move(item));
    return true;
  }

  // Takes all that is there, at once, without waiting.
  std::vector<T> Drain() {
    absl::MutexLock lock(&mutex_);
    return TakeAll();
  }

  // Waits until there is a message, the queue is closed, or `deadline`; then takes all that is
  // there. An idle consumer uses no CPU.
  std::vector<T> WaitAndDrain(TimePoint deadline) {
    absl::MutexLock lock(&mutex_);
    auto ready = [this] {
      mutex_.AssertHeld();
      return closed_ || !items_.empty();
    };
    if (deadline == kNoDeadline) {
      mutex_.Await(absl::Condition(&ready));
    } else {
      const auto left = deadline - std::chrono::steady_clock::now();
      mutex_.AwaitWithTimeout(absl::Condition(&ready), absl::FromChrono(left));
    }
    return TakeAll();
  }

  // No further message is taken; what is queued can still be drained.
  void Close() {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
  }

  bool closed() const {
    absl::MutexLock lock(&mutex_);
    return closed_;
  }

  // How many wait. Takes no lock: a consumer may ask in the middle of its work, and whoever watches
  // over a thread that hangs with the queue's lock in its hands does not hang with it.
  size_t size() const { return size_.load(std::memory_order_acquire); }

 private:
  void Append(T&& item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    items_.push_back(std::move(item));
    size_.store(items_.size(), std::memory_order_release);
  }

  std::vector<T> TakeAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    std::vector<T> taken(std::make_move_iterator(items_.begin()),
                         std::make_move_iterator(items_.end()));
    items_.clear();
    size_.store(0, std::memory_order_release);
    return taken;
  }

  const size_t capacity_;
  mutable absl::Mutex mutex_;
  std::deque<T> items_ ABSL_GUARDED_BY(mutex_);
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  std::atomic<size_t> size_ = 0;  // of items_
};

}  // namespace tandem
