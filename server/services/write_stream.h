#pragma once

#include <cstddef>
#include <utility>

#include "grpcpp/support/server_callback.h"
#include "server/services/write_queue.h"

namespace tandem {

// The server's end of a gRPC response stream, which writes the messages of a queue one after the
// other. It deletes itself when gRPC is done with it, which is only after Close or Abort: the owner
// of the request must call exactly one of them, and nothing after it. Push, PushWhole, Close and
// Abort are thread-safe and never block.
template <typename Message>
class WriteStream : public grpc::ServerWriteReactor<Message> {
 public:
  // `all` counts the bytes queued in all streams together, outlives this, and may be null.
  explicit WriteStream(size_t max_queued_bytes, AnswerBuffers* all = nullptr)
      : queue_(max_queued_bytes, all) {}

  // Sends a message. False when this stream's queue is full.
  [[nodiscard]] bool Push(Message message, size_t bytes) {
    return Do(queue_.Push(std::move(message), bytes, Pace::kLive));
  }
  // Sends a message however much this stream has queued. False when all streams together have too
  // much queued.
  [[nodiscard]] bool PushWhole(Message message, size_t bytes) {
    return Do(queue_.Push(std::move(message), bytes, Pace::kWhole));
  }
  // Whether a message that was pushed has not been written yet.
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

  // Does what the queue asks for. False when a message was not taken. This may be destroyed
  // afterwards.
  bool Do(Next next) {
    if (next == Next::kWrite) this->StartWrite(&queue_.current());
    if (next == Next::kFinish) this->Finish(status_);
    return next != Next::kFull;
  }

  WriteQueue<Message> queue_;
  // Written before the queue is closed, and read only after the queue has reported the end, so it
  // needs no lock.
  grpc::Status status_;
};

}  // namespace tandem
