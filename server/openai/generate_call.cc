#include "server/openai/generate_call.h"

#include <chrono>
#include <utility>

#include "base/status.h"
#include "server/openai/http_answers.h"
#include "server/openai/trace_headers.h"

namespace tandem::openai {
namespace {

// A stream begins after this time even without a token. Until then an error can be sent with a
// status of its own, which clients understand better than an error within a stream.
constexpr std::chrono::seconds kStartsAfter(5);

}  // namespace

// Receives the router's events for one prompt. It keeps the call alive for as long as the router
// may send events.
class GenerateCall::PromptStream final : public ResponseStream {
 public:
  PromptStream(std::shared_ptr<GenerateCall> call, size_t prompt)
      : call_(std::move(call)), prompt_(prompt) {}

  bool Send(const v1::GenerateResponse& response, Pace pace) override {
    return call_->OnEvent(prompt_, response, pace);
  }
  void End(const absl::Status& status) override {
    // Moved out of the member, because releasing the last reference destroys the call and this
    // stream with it.
    const std::shared_ptr<GenerateCall> call = std::move(call_);
    call->OnEnd(status);
  }
  // To be called where the router did not accept the request: releases the call.
  void Drop() { const std::shared_ptr<GenerateCall> call = std::move(call_); }

 private:
  std::shared_ptr<GenerateCall> call_;
  const size_t prompt_;
};

GenerateCall::GenerateCall(Router& router, EventLoop& loop, const Clock& clock,
                           std::shared_ptr<HttpExchange> exchange, std::string request_id,
                           std::unique_ptr<AnswerWriter> answer)
    : router_(router),
      loop_(loop),
      clock_(clock),
      exchange_(std::move(exchange)),
      request_id_(std::move(request_id)),
      answer_(std::move(answer)) {}

GenerateCall::~GenerateCall() = default;

void GenerateCall::Start(std::vector<v1::GenerateRequest> requests) {
  const std::shared_ptr<GenerateCall> self = shared_from_this();
  bool streams = false;
  {
    absl::MutexLock lock(&mutex_);
    unended_ = requests.size();
    streams = answer_->streams();
  }
  for (size_t i = 0; i < requests.size(); ++i) {
    streams_.push_back(std::make_unique<PromptStream>(self, i));
  }
  exchange_->OnGone([weak = weak_from_this()] {
    if (const std::shared_ptr<GenerateCall> call = weak.lock()) call->OnGone();
  });
  if (streams) StartStreamLater();
  const std::optional<TraceContext> caller = TraceContextOf(exchange_->request());
  for (size_t i = 0; i < requests.size(); ++i) {
    const absl::StatusOr<RequestId> id =
        router_.Submit(std::move(requests[i]), kNoDeadline, *streams_[i], caller);
    if (!id.ok()) {
      for (size_t rest = i; rest < requests.size(); ++rest) streams_[rest]->Drop();
      return Fail(id.status());
    }
    bool over = false;
    {
      absl::MutexLock lock(&mutex_);
      in_router_.push_back(*id);
      over = ended_.has_value();
    }
    if (over) {  // the client has gone, or an earlier prompt has failed already
      for (size_t rest = i + 1; rest < requests.size(); ++rest) streams_[rest]->Drop();
      return router_.Cancel(*id, Cancelled("the client went away, or another prompt failed"));
    }
  }
}

bool GenerateCall::OnEvent(size_t prompt, const v1::GenerateResponse& event, Pace pace) {
  absl::MutexLock lock(&mutex_);
  if (ended_) return true;  // the call is being cancelled
  std::string events = answer_->Add(prompt, event);
  if (events.empty()) return true;
  return StartStream() && stream_->Push(std::move(events), pace);
}

void GenerateCall::OnEnd(const absl::Status& status) {
  if (!status.ok()) return Fail(status);
  absl::MutexLock lock(&mutex_);
  if (--unended_ > 0 || ended_) return;
  ended_ = absl::OkStatus();
  Finish();
}

void GenerateCall::Finish() {
  std::string last = answer_->Finish();
  if (answer_->streams()) {
    // kWhole: the last part may be large, so its bound is the one for all unread answers together
    // and not that of this stream.
    const bool sent = StartStream() && stream_->Push(std::move(last), Pace::kWhole);
    return sent ? stream_->Close() : stream_->Abort();
  }
  HttpResponse response{.status = 200, .body = std::move(last)};
  AddAnswerHeaders(request_id_, response.headers, answer_->style().id_header);
  if (answer_->first_finish()) AddRouteHeaders(*answer_->first_finish(), response.headers);
  exchange_->Respond(std::move(response));
}

void GenerateCall::Fail(const absl::Status& status) {
  {
    absl::MutexLock lock(&mutex_);
    if (ended_) return;
    ended_ = status;
    if (stream_ == nullptr) {
      exchange_->Respond(answer_->style().error(status, request_id_));
    } else {
      const std::string error = answer_->StreamError(status);
      if (!absl::IsResourceExhausted(status) && stream_->Push(error, Pace::kWhole)) {
        stream_->Close();
      } else {
        // A client that reads too slowly would first have to read all that is queued before the
        // error.
        stream_->Abort(error);
      }
    }
  }
  CancelAll(Cancelled("another prompt of its HTTP request failed"));
}

void GenerateCall::OnGone() {
  const absl::Status gone = Cancelled("the client went away");
  {
    absl::MutexLock lock(&mutex_);
    if (ended_) return;
    ended_ = gone;
    if (stream_ != nullptr) stream_->Abort();
  }
  CancelAll(gone);
}

void GenerateCall::CancelAll(const absl::Status& why) {
  std::vector<RequestId> ids;
  {
    absl::MutexLock lock(&mutex_);
    ids = in_router_;
  }
  for (const RequestId id : ids) router_.Cancel(id, why);
}

void GenerateCall::StartStreamLater() {
  const auto start = [weak = weak_from_this()] {
    if (const std::shared_ptr<GenerateCall> call = weak.lock()) call->StartStreamUnlessEnded();
  };
  loop_.Post(
      [&loop = loop_, begins = clock_.Now() + kStartsAfter, start] { loop.PostAt(begins, start); });
}

void GenerateCall::StartStreamUnlessEnded() {
  {
    absl::MutexLock lock(&mutex_);
    if (ended_ || StartStream()) return;
  }
  Fail(ResourceExhausted("too much of other answers is unread: try again later"));
}

bool GenerateCall::StartStream() {
  if (stream_ != nullptr) return true;
  HttpStreamStart start;
  start.headers.push_back({"cache-control", "no-cache"});
  AddAnswerHeaders(request_id_, start.headers, answer_->style().id_header);
  start.keep_alive_part = answer_->style().keep_alive;
  stream_ = exchange_->StartStream(std::move(start));
  // kWhole: some APIs begin with a long repetition of the request, whose size does not mean that
  // the client is slow.
  std::string begin = answer_->Begin();
  return begin.empty() || stream_->Push(std::move(begin), Pace::kWhole);
}

}  // namespace tandem::openai
