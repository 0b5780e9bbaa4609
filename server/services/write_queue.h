#pragma once

#include <cstddef>
#include <cstdint>
#include <deque>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "router/request/answer_buffers.h"
#include "router/request/pace.h"

namespace tandem {

// The messages of one answer that its client has not been sent yet, bounded in bytes. A transport
// writes them one after the other: the result of each call says what the transport has to do next.
//
//   state     Push            Close     Abort              OnWritten
//   idle      kWrite          kFinish   kFinish            -
//   writing   kNothing/kFull  kNothing  kNothing, dropped  kWrite; when empty: idle, closed:
// kFinish
//
// No message may be pushed after Close, CloseWith or Abort. After Abandon all calls but OnWritten
// may still come, and their messages are dropped. Thread-safe; nothing blocks or calls back.
template <typename Message>
class WriteQueue {
 public:
  enum class Next : uint8_t {
    kNothing,  // wait for the end of the write in progress, or for a push
    kWrite,    // write current(), then call OnWritten
    kFinish,   // end the answer: all is written or dropped
    kFull,     // returned by Push only: the message was not taken
  };

  // `all` counts the bytes queued in all queues together. It outlives this queue or its Abandon,
  // and may be null.
  WriteQueue(size_t max_queued_bytes, AnswerBuffers* all)
      : max_queued_bytes_(max_queued_bytes), all_(all) {}
  ~WriteQueue() {
    absl::MutexLock lock(&mutex_);
    DropAll();
  }

  // Takes a message: a kLive one while this queue has room, a kWhole one while all queues together
  // have room. A message that the transport can write at once needs no room.
  [[nodiscard]] Next Push(Message message, size_t bytes, Pace pace) {
    absl::MutexLock lock(&mutex_);
    if (abandoned_) return Next::kNothing;
    if (!writing_) {
      writing_ = true;
      current_ = std::move(message);
      return Next::kWrite;
    }
    if (!TakeRoom(bytes, pace)) return Next::kFull;
    queued_bytes_ += bytes;
    queue_.emplace_back(std::move(message), bytes);
    return Next::kNothing;
  }
  // To be called when the write of current() is over. If it failed, the client is gone and all that
  // is queued is dropped.
  [[nodiscard]] Next OnWritten(bool ok) {
    absl::MutexLock lock(&mutex_);
    if (!ok) DropAll();
    if (queue_.empty()) {
      writing_ = false;
      return closed_ ? Next::kFinish : Next::kNothing;
    }
    const size_t bytes = queue_.front().second;
    current_ = std::move(queue_.front().first);
    queued_bytes_ -= bytes;
    if (all_ != nullptr) all_->Remove(bytes);
    queue_.pop_front();
    return Next::kWrite;
  }
  [[nodiscard]] Next Close() {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    return writing_ ? Next::kNothing : Next::kFinish;
  }
  // Closes the queue after `last`, which is taken however full the queue is.
  [[nodiscard]] Next CloseWith(Message last, size_t bytes) {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    if (abandoned_) return Next::kNothing;
    if (!writing_) {
      writing_ = true;
      current_ = std::move(last);
      return Next::kWrite;
    }
    if (all_ != nullptr) all_->Add(bytes);
    queued_bytes_ += bytes;
    queue_.emplace_back(std::move(last), bytes);
    return Next::kNothing;
  }
  // Closes the queue and drops the messages in it.
  [[nodiscard]] Next Abort() {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    DropAll();
    return writing_ ? Next::kNothing : Next::kFinish;
  }
  // Drops the messages in the queue; more may be pushed.
  void Drop() {
    absl::MutexLock lock(&mutex_);
    DropAll();
  }
  // To be called when the transport will write nothing more, although a write in progress may still
  // read current(). All messages, also later ones, are dropped, and `all` may be destroyed before
  // this queue.
  void Abandon() {
    absl::MutexLock lock(&mutex_);
    DropAll();
    abandoned_ = true;
    all_ = nullptr;
  }

  // Whether a message that was pushed has not been written yet.
  bool HasUnwritten() const {
    absl::MutexLock lock(&mutex_);
    return writing_;
  }
  // The message to write. It belongs to the transport between kWrite and OnWritten.
  Message& current() { return current_; }

 private:
  // Counts a queued message. Only kWhole messages are refused because of what other queues hold: a
  // live stream has a limit of its own, which is small.
  bool TakeRoom(size_t bytes, Pace pace) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (pace == Pace::kLive && queued_bytes_ + bytes > max_queued_bytes_) return false;
    if (all_ == nullptr) return true;
    if (pace == Pace::kWhole) return all_->TryAdd(bytes);
    all_->Add(bytes);
    return true;
  }

  void DropAll() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (all_ != nullptr) all_->Remove(queued_bytes_);
    queued_bytes_ = 0;
    queue_.clear();
  }

  const size_t max_queued_bytes_;
  Message current_;
  mutable absl::Mutex mutex_;
  AnswerBuffers* all_ ABSL_GUARDED_BY(mutex_);
  std::deque<std::pair<Message, size_t>> queue_ ABSL_GUARDED_BY(mutex_);
  size_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  bool abandoned_ ABSL_GUARDED_BY(mutex_) = false;
};

}  // namespace tandem
