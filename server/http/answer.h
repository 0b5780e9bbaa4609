#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "server/http/body_budget.h"
#include "server/http/http_exchange.h"
#include "server/services/write_queue.h"

namespace tandem {

// The form of an answer, as far as its request and connection determine it.
struct AnswerForm {
  enum class Body : bool { kSent, kLeftOut };
  Body body = Body::kSent;  // left out of answers to HEAD
  HttpVersion version = HttpVersion::k11;
  AfterAnswer after = AfterAnswer::kKeepAlive;
};

// One answer between its handler and its connection: the handler queues bytes, the connection's I/O
// thread writes them.
//
//   phase        from                          the connection
//   kAwaited     the start                     waits
//   kStreaming   Start                         writes, and sends comments when idle
//   kClosing     Respond, Close                writes the rest, for as long as a client may read
//   kAborting    Abort                         writes the last part, for a short time, then closes
//   kFinished    the last write                reads the next request, or closes
//
// Thread-safe; nothing blocks.
class Answer {
 public:
  enum class Phase : uint8_t { kAwaited, kStreaming, kClosing, kAborting, kFinished };
  // `wake` only queues a task that makes the connection look at this answer again. `all` is the
  // same as in WriteQueue.
  Answer(AnswerForm form, size_t max_queued_bytes, AnswerBuffers* all, std::function<void()> wake);

  // The handler's side. A call that is not allowed in the present phase is logged and ignored.
  void Respond(HttpResponse response);
  void Start(const HttpStreamStart& start);
  [[nodiscard]] bool Push(std::string part, Pace pace);
  bool HasUnwritten() const { return queue_.HasUnwritten(); }
  void Close();
  void Abort(std::string last_part);
  void OnGone(std::function<void()> gone);
  // The handler has dropped the exchange or the stream without ending the answer: ends it now.
  void AbandonExchange();
  void AbandonStream();

  // The connection's side, to be called on its I/O thread. ExpectWake must be called before the
  // connection looks for what to do: changes after that call wake it.
  void ExpectWake();
  Phase phase() const;
  // The bytes to write next, which remain valid until OnWritten; null: nothing for now.
  const std::string* NextWrite();
  void OnWritten(bool ok);
  // Whether the connection may be used for another request. Only in the phase kFinished.
  AfterAnswer after() const;
  // keep_alive: after how long without a write an idle stream sends KeepAlivePart, which is in this
  // answer's encoding; zero: never.
  Duration keep_alive() const;
  std::string KeepAlivePart() const;
  // To be called when the client has gone before the phase kFinished: returns the handler's
  // callback for that.
  [[nodiscard]] std::function<void()> TakeGone();
  // The connection does not use this answer any more. The handler may still hold it, even after
  // `all` is gone.
  void Detach();

 private:
  using Next = WriteQueue<std::string>::Next;

  // The status line and headers of an answer of this form, chunked unless the length is known.
  std::string Head(int status, const std::string& content_type, std::vector<HttpHeader> headers,
                   std::optional<size_t> content_length) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  std::string Frame(std::string part) const;
  // Notes what the connection has to do next, and wakes it if that is anything.
  void Do(Next next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void EnterPhase(Phase phase, Next next) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void Wake() ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void RespondLocked(HttpResponse response) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);
  void AbortLocked(std::string last_part) ABSL_EXCLUSIVE_LOCKS_REQUIRED(mutex_);

  const HttpVersion version_;
  const bool is_chunked_;  // whether a stream is sent in chunks
  const bool has_body_;
  WriteQueue<std::string> queue_;
  mutable absl::Mutex mutex_;  // held across wake_, which only queues a task
  Phase phase_ ABSL_GUARDED_BY(mutex_) = Phase::kAwaited;
  AfterAnswer after_ ABSL_GUARDED_BY(mutex_);
  bool write_due_ ABSL_GUARDED_BY(mutex_) = false;
  bool waking_ ABSL_GUARDED_BY(mutex_) = false;
  bool is_gone_ ABSL_GUARDED_BY(mutex_) = false;
  Duration keep_alive_ ABSL_GUARDED_BY(mutex_) = Duration::zero();
  std::string keep_alive_part_ ABSL_GUARDED_BY(mutex_);
  std::function<void()> wake_ ABSL_GUARDED_BY(mutex_);  // empty once detached
  std::function<void()> gone_ ABSL_GUARDED_BY(mutex_);
};

// The exchange that a handler gets. It keeps `body`, the request's share of the budget, until the
// handler takes the body.
std::shared_ptr<HttpExchange> NewExchange(HttpRequest request, std::shared_ptr<BodyShare> body,
                                          std::shared_ptr<Answer> answer);

}  // namespace tandem
