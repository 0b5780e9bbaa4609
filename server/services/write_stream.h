#pragma once

#include <cstddef>
#include <utility>

#include "grpcpp/support/server_callback.h"
#include "server/services/write_queue.h"

namespace tandem {

// The server's end of a response stream of gRPC: writes the messages of a queue one after the other.
// Deletes itself when gRPC is done with it, which is only after Close or Abort: whoever owns the
// request calls exactly one of them, and nothing after it. The pushes, Close and Abort are
// thread-safe and never block.
template <typename Message>
class WriteStream : public grpc::ServerWriteReactor<Message> {
 public:
  // `all` counts what waits in all streams together, outlives this, and may be null.
  explicit WriteStream(size_t max_queued_bytes, AnswerBuffers* all = nullptr)
      : queue_(max_queued_bytes, all) {}

  // False when the queue is full.
  [[nodiscard]] bool Push(Message message, size_t bytes) {
    return Do(queue_.Push(std::move(message), bytes, Pace::kLive));
  }
  // However much is queued here. False when all streams together have too much.
  [[nodiscard]] bool PushWhole(Message message, size_t bytes) {
    return Do(queue_.Push(std::move(message), bytes, Pace::kWhole));
  }
  // Whether something that was pushed has not been written yet.
  bool HasUnwritten() const { return queue_.HasUnwritten(); }
  // Ends the stream once all that was pushed is written.
  void Close(const grpc::Status& status) {
    status_ = status;
    Do(queue_.Close());
  }
  // Ends the stream as soon as the write in progress, if any, is over.
  void Abort(const grpc::Status& status) {
    status_ = status;
    Do(queue_.Abort());
  }

  void OnWriteDone(bool ok) override { Do(queue_.OnWritten(ok)); }

  void OnDone() override { delete this; }

 private:
  using Next = typename WriteQueue<Message>::Next;

  // False when a message was not taken. Afterwards this may be gone.
  bool Do(Next next) {
    if (next == Next::kWrite) this->StartWrite(&queue_.current());
    if (next == Next::kFinish) this->Finish(status_);
    return next != Next::kFull;
  }

  WriteQueue<Message> queue_;
  // Written before the queue is closed, and read once the queue has said that it is.
  grpc::Status status_;
};

}  // namespace tandem
