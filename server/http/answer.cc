#include "server/http/answer.h"

#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "base/log.h"
#include "fmt/format.h"

namespace tandem {
namespace {

// A body up to this size is written together with its head.
constexpr size_t kShortBody = 16 << 10;
constexpr std::string_view kLastChunk = "0\r\n\r\n";

class ServedStream final : public HttpStream {
 public:
  explicit ServedStream(std::shared_ptr<Answer> answer) : answer_(std::move(answer)) {}
  ~ServedStream() override { answer_->AbandonStream(); }

  bool Push(std::string part, Pace pace) override { return answer_->Push(std::move(part), pace); }
  bool HasUnwritten() const override { return answer_->HasUnwritten(); }
  void Close() override { answer_->Close(); }
  void Abort(std::string last_part) override { answer_->Abort(std::move(last_part)); }

 private:
  const std::shared_ptr<Answer> answer_;
};

class ServedExchange final : public HttpExchange {
 public:
  ServedExchange(HttpRequest request, std::shared_ptr<BodyShare> body,
                 std::shared_ptr<Answer> answer)
      : request_(std::move(request)), body_(std::move(body)), answer_(std::move(answer)) {}
  ~ServedExchange() override { answer_->AbandonExchange(); }

  const HttpRequest& request() const override { return request_; }
  std::string TakeBody() override {
    body_.reset();
    return std::exchange(request_.body, std::string());
  }
  void Respond(HttpResponse response) override { answer_->Respond(std::move(response)); }
  std::shared_ptr<HttpStream> StartStream(HttpStreamStart start) override {
    answer_->Start(start);
    return std::make_shared<ServedStream>(answer_);
  }
  void OnGone(std::function<void()> gone) override { answer_->OnGone(std::move(gone)); }

 private:
  HttpRequest request_;
  std::shared_ptr<BodyShare> body_;
  const std::shared_ptr<Answer> answer_;
};

}  // namespace

std::shared_ptr<HttpExchange> NewExchange(HttpRequest request, std::shared_ptr<BodyShare> body,
                                          std::shared_ptr<Answer> answer) {
  return std::make_shared<ServedExchange>(std::move(request), std::move(body), std::move(answer));
}

Answer::Answer(AnswerForm form, size_t max_queued_bytes, AnswerBuffers* all,
               std::function<void()> wake)
    : version_(form.version),
      is_chunked_(form.version == HttpVersion::k11),
      has_body_(form.body == AnswerForm::Body::kSent),
      queue_(max_queued_bytes, all),
      after_(form.after),
      wake_(std::move(wake)) {}

void Answer::Respond(HttpResponse response) {
  absl::MutexLock lock(&mutex_);
  if (phase_ != Phase::kAwaited) return LogError("an HTTP request was answered twice");
  RespondLocked(std::move(response));
}

void Answer::RespondLocked(HttpResponse response) {
  std::string body = HasNoBody(response.status) ? "" : std::move(response.body);
  std::optional<size_t> length;
  if (!HasNoBody(response.status)) length = body.size();
  std::string message =
      Head(response.status, length ? response.content_type : "", response.headers, length);
  if (!has_body_) body.clear();
  if (body.size() <= kShortBody) {
    message += body;
    body.clear();
  }
  const size_t bytes = message.size();
  // The result is never kFull, because the queue is still empty.
  const Next next = queue_.Push(std::move(message), bytes, Pace::kLive);
  if (!body.empty()) {
    const size_t body_bytes = body.size();
    if (queue_.Push(std::move(body), body_bytes, Pace::kWhole) == Next::kFull) {
      HttpResponse refusal = HttpError(503, "too much of other answers is unread: try again later");
      std::string head =
          Head(503, refusal.content_type, {{"Retry-After", "1"}}, refusal.body.size());
      queue_.current() = head + refusal.body;  // the connection writes it only after NextWrite
    }
  }
  Do(next);
  EnterPhase(Phase::kClosing, queue_.Close());
}

void Answer::Start(const HttpStreamStart& start) {
  absl::MutexLock lock(&mutex_);
  if (phase_ != Phase::kAwaited) return LogError("an HTTP request was answered twice");
  if (!is_chunked_) after_ = AfterAnswer::kClose;  // which is how HTTP/1.0 ends a body
  std::string head = Head(start.status, start.content_type, start.headers, std::nullopt);
  const size_t bytes = head.size();
  phase_ = Phase::kStreaming;
  keep_alive_ = start.keep_alive;
  keep_alive_part_ = start.keep_alive_part;
  Do(queue_.Push(std::move(head), bytes, Pace::kLive));
}

bool Answer::Push(std::string part, Pace pace) {
  absl::MutexLock lock(&mutex_);
  if (phase_ != Phase::kStreaming) {
    LogError("a part of an HTTP answer came outside of its stream");
    return true;
  }
  if (is_gone_ || !has_body_ || part.empty()) return true;
  std::string message = Frame(std::move(part));
  const size_t bytes = message.size();
  const Next next = queue_.Push(std::move(message), bytes, pace);
  Do(next);
  return next != Next::kFull;
}

void Answer::Close() {
  absl::MutexLock lock(&mutex_);
  if (phase_ != Phase::kStreaming) return LogError("an HTTP stream was ended twice");
  const bool marks_end = is_chunked_ && has_body_;
  EnterPhase(Phase::kClosing, marks_end
                                  ? queue_.CloseWith(std::string(kLastChunk), kLastChunk.size())
                                  : queue_.Close());
}

void Answer::Abort(std::string last_part) {
  absl::MutexLock lock(&mutex_);
  if (phase_ != Phase::kStreaming) return LogError("an HTTP stream was ended twice");
  AbortLocked(std::move(last_part));
}

void Answer::AbortLocked(std::string last_part) {
  after_ = AfterAnswer::kClose;
  queue_.Drop();
  if (last_part.empty() || !has_body_) return EnterPhase(Phase::kAborting, queue_.Close());
  std::string message = Frame(std::move(last_part));
  const size_t bytes = message.size();
  EnterPhase(Phase::kAborting, queue_.CloseWith(std::move(message), bytes));
}

void Answer::OnGone(std::function<void()> gone) {
  {
    absl::MutexLock lock(&mutex_);
    if (phase_ == Phase::kFinished) return;
    if (!is_gone_) {
      gone_ = std::move(gone);
      return;
    }
  }
  gone();
}

void Answer::AbandonExchange() {
  absl::MutexLock lock(&mutex_);
  if (phase_ != Phase::kAwaited || is_gone_) return;
  LogError("an HTTP request was left without an answer");
  RespondLocked(HttpError(500, "the server failed to answer this request"));
}

void Answer::AbandonStream() {
  absl::MutexLock lock(&mutex_);
  if (phase_ == Phase::kStreaming) AbortLocked("");
}

std::string Answer::Head(int status, const std::string& content_type,
                         std::vector<HttpHeader> headers, std::optional<size_t> content_length) {
  return RenderHead({.status = status,
                     .content_type = content_type,
                     .headers = std::move(headers),
                     .content_length = content_length,
                     .version = version_,
                     .after = after_});
}

std::string Answer::Frame(std::string part) const {
  if (!is_chunked_) return part;
  return fmt::format("{:x}\r\n{}\r\n", part.size(), part);
}

void Answer::EnterPhase(Phase phase, Next next) {
  phase_ = phase;
  Do(next);
  Wake();
}

void Answer::Do(Next next) {
  if (next == Next::kFinish) phase_ = Phase::kFinished;
  if (next == Next::kWrite) write_due_ = true;
  if (next == Next::kFinish || next == Next::kWrite) Wake();
}

void Answer::Wake() {
  if (!wake_ || waking_) return;
  waking_ = true;
  wake_();
}

void Answer::ExpectWake() {
  absl::MutexLock lock(&mutex_);
  waking_ = false;
}

Answer::Phase Answer::phase() const {
  absl::MutexLock lock(&mutex_);
  return phase_;
}

const std::string* Answer::NextWrite() {
  absl::MutexLock lock(&mutex_);
  if (!write_due_) return nullptr;
  write_due_ = false;
  return &queue_.current();
}

void Answer::OnWritten(bool ok) {
  absl::MutexLock lock(&mutex_);
  const Next next = queue_.OnWritten(ok);
  write_due_ = next == Next::kWrite;
  if (next == Next::kFinish) phase_ = Phase::kFinished;
}

AfterAnswer Answer::after() const {
  absl::MutexLock lock(&mutex_);
  return after_;
}

Duration Answer::keep_alive() const {
  absl::MutexLock lock(&mutex_);
  return has_body_ ? keep_alive_ : Duration::zero();
}

std::string Answer::KeepAlivePart() const {
  absl::MutexLock lock(&mutex_);
  return Frame(keep_alive_part_);
}

std::function<void()> Answer::TakeGone() {
  absl::MutexLock lock(&mutex_);
  is_gone_ = true;
  queue_.Drop();
  return std::exchange(gone_, nullptr);
}

void Answer::Detach() {
  std::function<void()> wake, gone;  // destroyed without the lock
  absl::MutexLock lock(&mutex_);
  is_gone_ = true;
  queue_.Abandon();
  wake = std::exchange(wake_, nullptr);
  gone = std::exchange(gone_, nullptr);
}

}  // namespace tandem
