#pragma once

#include <atomic>
#include <cstddef>
#include <deque>
#include <utility>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "base/clock.h"
#include "base/condition_variable.h"

namespace tandem {

// A queue of many producers and one consumer that holds at most `capacity` messages: the inbox of a
// thread. Thread-safe. A full queue refuses (the caller answers RESOURCE_EXHAUSTED); it never
// blocks a producer.
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

  // Adds a message whatever the capacity is. For messages that free resources (cancel, release,
  // completion): they must not be lost to overload, and their number is bounded by what was
  // admitted. False when the queue is closed.
  bool PushAlways(T&& item) {
    absl::MutexLock lock(&mutex_);
    if (closed_) return false;
    Append(std::move(item));
    return true;
  }

  // Returns all queued messages without waiting.
  std::vector<T> Drain() {
    absl::MutexLock lock(&mutex_);
    return TakeAll();
  }

  // Waits until there is a message, the queue is closed, or `deadline` has passed; then returns all
  // queued messages. An idle consumer uses no CPU.
  std::vector<T> WaitAndDrain(TimePoint deadline) {
    absl::MutexLock lock(&mutex_);
    waiting_ = true;
    changed_.AwaitUntil(mutex_, deadline, [this]() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
      return closed_ || !items_.empty();
    });
    waiting_ = false;
    return TakeAll();
  }

  // Closes the queue: later pushes are refused; messages that are queued already can still be
  // drained.
  void Close() {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    if (waiting_) changed_.Signal();
  }

  bool closed() const {
    absl::MutexLock lock(&mutex_);
    return closed_;
  }

  // The number of queued messages. Takes no lock, so that a watchdog does not hang when a thread
  // hangs while it holds the queue's lock.
  size_t size() const { return size_.load(std::memory_order_acquire); }

 private:
  void Append(T&& item) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    items_.push_back(std::move(item));
    size_.store(items_.size(), std::memory_order_release);
    if (waiting_) changed_.Signal();
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
  bool waiting_ ABSL_GUARDED_BY(mutex_) = false;  // the consumer is in WaitAndDrain
  MonotonicCondVar changed_;
  std::atomic<size_t> size_ = 0;  // items_.size(), readable without the lock
};

}  // namespace tandem
