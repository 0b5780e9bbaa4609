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
// writes them one after the other: each call says what it has to do next.
//
//   state     Push            Close     Abort              OnWritten
//   idle      kWrite          kFinish   kFinish            -
//   writing   kNothing/kFull  kNothing  kNothing, dropped  kWrite; when empty: idle, closed: kFinish
//
// After Close, CloseWith or Abort nothing is pushed. After Abandon all calls but OnWritten may still
// come, and what they bring is dropped. Thread-safe; nothing blocks or calls back.
template <typename Message>
class WriteQueue {
 public:
  enum class Next : uint8_t {
    kNothing,  // until the write in progress is over, or something is pushed
    kWrite,    // current(), then call OnWritten
    kFinish,   // the answer: all is written or dropped
    kFull,     // only of Push: the message was not taken
  };

  // `all` counts what waits in all queues together, outlives this or its Abandon, and may be null.
  WriteQueue(size_t max_queued_bytes, AnswerBuffers* all)
      : max_queued_bytes_(max_queued_bytes), all_(all) {}
  ~WriteQueue() {
    absl::MutexLock lock(&mutex_);
    DropAll();
  }

  // A kLive message is taken while there is room in this queue, a kWhole one while all queues together
  // have room. What the transport writes at once needs no room.
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
  // The write of current() is over. When it failed, the client is gone and the rest is dropped.
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
  // As Close, after `last`, which is taken however full the queue is.
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
  // As Close, and drops what is queued.
  [[nodiscard]] Next Abort() {
    absl::MutexLock lock(&mutex_);
    closed_ = true;
    DropAll();
    return writing_ ? Next::kNothing : Next::kFinish;
  }
  // Drops what is queued; more may be pushed.
  void Drop() {
    absl::MutexLock lock(&mutex_);
    DropAll();
  }
  // The transport writes nothing more; a write in progress may still read current(). What is queued and
  // what is still to come is dropped, and `all` may end before this.
  void Abandon() {
    absl::MutexLock lock(&mutex_);
    DropAll();
    abandoned_ = true;
    all_ = nullptr;
  }

  // Whether something that was pushed has not been written yet.
  bool HasUnwritten() const {
    absl::MutexLock lock(&mutex_);
    return writing_;
  }
  // The transport's between kWrite and OnWritten.
  Message& current() { return current_; }

 private:
  // Only whole answers are refused for what others have queued: a stream with a limit of its own cannot
  // take much.
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
