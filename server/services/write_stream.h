#pragma once

#include <cstddef>
#include <deque>
#include <limits>
#include <optional>
#include <utility>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/support/server_callback.h"
#include "router/request/answer_buffers.h"

namespace tandem {

// The server's end of a response stream: queues messages up to a number of bytes and writes them
// one after the other. Deletes itself when gRPC is done with it, which is only after Close or
// Abort: whoever owns the request calls exactly one of them, and nothing after it. The pushes,
// Close and Abort are thread-safe and never block.
template <typename Message>
class WriteStream : public grpc::ServerWriteReactor<Message> {
 public:
  // `all` counts what waits in all streams together, outlives this, and may be null.
  explicit WriteStream(size_t max_queued_bytes, AnswerBuffers* all = nullptr)
      : max_queued_bytes_(max_queued_bytes), all_(all) {}
  ~WriteStream() override {
    absl::MutexLock lock(&mutex_);
    DropQueue();
  }

  // False when the queue is full.
  [[nodiscard]] bool Push(Message message, size_t bytes) {
    return PushWithin(max_queued_bytes_, std::move(message), bytes);
  }
  // However much is queued here. False when all streams together have too much.
  [[nodiscard]] bool PushWhole(Message message, size_t bytes) {
    return PushWithin(std::numeric_limits<size_t>::max(), std::move(message), bytes);
  }
  // Whether something that was pushed has not been written yet.
  bool HasUnwritten() const {
    absl::MutexLock lock(&mutex_);
    return writing_;
  }
  // Ends the stream once all that was pushed is written.
  void Close(const grpc::Status& status) { EndWith(status, Queued::kWrite); }
  // Ends the stream as soon as the write in progress, if any, is over.
  void Abort(const grpc::Status& status) { EndWith(status, Queued::kDrop); }

  void OnWriteDone(bool ok) override {
    std::optional<grpc::Status> end;
    {
      absl::MutexLock lock(&mutex_);
      if (!ok) DropQueue();  // the client is gone
      if (queue_.empty()) {
        writing_ = false;
        if (!closed_) return;
        end = status_;
      } else {
        current_ = std::move(queue_.front().first);
        queued_bytes_ -= queue_.front().second;
        if (all_ != nullptr) all_->Remove(queue_.front().second);
        queue_.pop_front();
      }
    }
    if (end) {
      this->Finish(*end);
    } else {
      this->StartWrite(&current_);
    }
  }

  void OnDone() override { delete this; }

 private:
  enum class Queued : bool { kWrite, kDrop };

  bool PushWithin(size_t max_queued_bytes, Message message, size_t bytes) {
    {
      absl::MutexLock lock(&mutex_);
      if (writing_) {
        if (queued_bytes_ + bytes > max_queued_bytes) return false;
        if (!AddToAll(max_queued_bytes, bytes)) return false;
        queued_bytes_ += bytes;
        queue_.emplace_back(std::move(message), bytes);
        return true;
      }
      writing_ = true;
      current_ = std::move(message);
    }
    this->StartWrite(&current_);
    return true;
  }

  // Only whole answers are refused for what others have queued: a stream with a limit of its own
  // cannot take much.
  bool AddToAll(size_t max_queued_bytes, size_t bytes) {
    if (all_ == nullptr) return true;
    if (max_queued_bytes == std::numeric_limits<size_t>::max()) return all_->TryAdd(bytes);
    all_->Add(bytes);
    return true;
  }

  void DropQueue() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_) {
    if (all_ != nullptr) all_->Remove(queued_bytes_);
    queued_bytes_ = 0;
    queue_.clear();
  }

  void EndWith(const grpc::Status& status, Queued queued) {
    {
      absl::MutexLock lock(&mutex_);
      closed_ = true;
      status_ = status;
      if (queued == Queued::kDrop) DropQueue();
      if (writing_) return;  // OnWriteDone goes on
    }
    this->Finish(status);
  }

  const size_t max_queued_bytes_;
  AnswerBuffers* const all_;
  Message current_;  // being written: gRPC's while `writing_`
  mutable absl::Mutex mutex_;
  std::deque<std::pair<Message, size_t>> queue_ ABSL_GUARDED_BY(mutex_);
  size_t queued_bytes_ ABSL_GUARDED_BY(mutex_) = 0;
  bool writing_ ABSL_GUARDED_BY(mutex_) = false;
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;
  grpc::Status status_ ABSL_GUARDED_BY(mutex_);
};

}  // namespace tandem
