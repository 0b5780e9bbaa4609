#include "server/terminal/chat_connection.h"

#include <utility>
#include <vector>

#include "absl/synchronization/mutex.h"
#include "base/api_key.h"
#include "base/json.h"
#include "base/status.h"
#include "bench/serving/openai_messages.h"
#include "bench/serving/sse_parser.h"
#include "fmt/format.h"
#include "nlohmann/json.hpp"

namespace tandem::terminal {
namespace {

using loadgen::HttpAnswer;

constexpr long kHttpOk = 200;
constexpr size_t kMostAnswerBytes = 64 << 20;
constexpr size_t kMostErrorBytes = 4096;

std::string WithoutSlash(std::string url) {
  while (url.ends_with('/')) url.pop_back();
  return url;
}

// What has come of an answer and was not printed yet: filled by the thread of the HTTP exchange,
// emptied by the thread that prints.
class Inbox {
 public:
  explicit Inbox(Wakeup& wakeup) : wakeup_(wakeup) {}

  void AddEvent(std::string_view data) {
    absl::MutexLock lock(&mutex_);
    events_.emplace_back(data);
  }
  void End(absl::Status status) {
    absl::MutexLock lock(&mutex_);
    end_ = std::move(status);
  }
  void Wake() { wakeup_.Wake(); }

  std::vector<std::string> TakeEvents() {
    absl::MutexLock lock(&mutex_);
    return std::exchange(events_, {});
  }
  // How the answer ended; nothing before its end. To be called before TakeEvents: once this has a
  // value, that returns all events that were left.
  std::optional<absl::Status> end() const {
    absl::MutexLock lock(&mutex_);
    return end_;
  }

 private:
  Wakeup& wakeup_;
  mutable absl::Mutex mutex_;
  std::vector<std::string> events_ ABSL_GUARDED_BY(mutex_);
  std::optional<absl::Status> end_ ABSL_GUARDED_BY(mutex_);
};

class InboxSink final : public loadgen::HttpSink {
 public:
  explicit InboxSink(std::shared_ptr<Inbox> inbox)
      : inbox_(std::move(inbox)),
        parser_([this](std::string_view data) { inbox_->AddEvent(data); }) {}

  void OnBody(long code, std::string_view bytes) override {
    bytes_ += bytes.size();
    if (code != kHttpOk) {
      if (error_body_.size() < kMostErrorBytes) error_body_ += bytes;
      return;
    }
    if (bytes_ > kMostAnswerBytes) return;
    parser_.Feed(bytes);
    inbox_->Wake();
  }
  void OnEnd(long code, absl::Status status) override {
    if (status.ok()) status = loadgen::StatusOfAnswer(code, error_body_);
    if (status.ok() && bytes_ > kMostAnswerBytes) {
      status = ResourceExhausted("the answer has {} bytes; at most {} are taken", bytes_,
                                 kMostAnswerBytes);
    }
    inbox_->End(std::move(status));
    inbox_->Wake();
  }

 private:
  const std::shared_ptr<Inbox> inbox_;
  loadgen::SseParser parser_;
  size_t bytes_ = 0;
  std::string error_body_;
};

absl::Status StatusOf(const absl::StatusOr<HttpAnswer>& answer) {
  return answer.ok() ? loadgen::StatusOfAnswer(answer->code, answer->body) : answer.status();
}

}  // namespace

ChatConnection::ChatConnection(std::string url, Wakeup& wakeup, TlsFiles tls)
    : url_(WithoutSlash(std::move(url))), tls_(std::move(tls)), wakeup_(wakeup) {}

loadgen::HttpRequest ChatConnection::Request(const std::string& path) const {
  loadgen::HttpRequest request = {
      .url = url_ + path,
      .headers = {"Content-Type: application/json",
                  "Expect:"},  // removed, else curl waits for "100 Continue" before long bodies
      .tls = tls_};
  const std::string authorization = AuthorizationFromEnvironment();
  if (!authorization.empty()) request.headers.push_back("Authorization: " + authorization);
  return request;
}

absl::StatusOr<ServedModel> ChatConnection::FindModel(const std::string& name) const {
  const absl::StatusOr<HttpAnswer> answer = Fetch(Request("/v1/models"));
  RETURN_IF_ERROR(StatusOf(answer));
  ASSIGN_OR_RETURN(const loadgen::ServerInfo info, loadgen::ParseModels(answer->body, name));
  return ServedModel{.name = info.model, .max_context_tokens = info.max_context_tokens};
}

absl::StatusOr<int64_t> ChatConnection::CountTokens(const std::string& body) const {
  loadgen::HttpRequest request = Request("/tokenize");
  request.body = body;
  const absl::StatusOr<HttpAnswer> answer = Fetch(request);
  RETURN_IF_ERROR(StatusOf(answer));
  const nlohmann::json json = ParseJson(answer->body);
  const auto count = json.is_object() ? json.find("count") : json.end();
  if (count == json.end() || !count->is_number_integer()) {
    return InvalidArgument("the answer of /tokenize has no count");
  }
  return count->get<int64_t>();
}

absl::StatusOr<std::string> ChatConnection::Explain(const std::string& request_id,
                                                    int columns) const {
  loadgen::HttpRequest request =
      Request(fmt::format("/explain/{}?columns={}", request_id, columns));
  request.headers.emplace_back("Accept: text/plain");
  absl::StatusOr<HttpAnswer> answer = Fetch(request);
  RETURN_IF_ERROR(StatusOf(answer));
  return std::move(answer->body);
}

absl::Status ChatConnection::Ask(const std::string& body, const std::string& request_id,
                                 const std::function<void(std::string_view)>& on_event,
                                 const std::function<bool()>& must_stop) {
  loadgen::HttpRequest request = Request("/v1/chat/completions");
  request.headers.push_back("x-request-id: " + request_id);
  request.body = body;
  request.timeout =
      Duration::zero();  // none: the server bounds an answer's time, and Ctrl-C ends it
  const auto inbox = std::make_shared<Inbox>(wakeup_);
  const std::shared_ptr<loadgen::HttpExchange> exchange =
      streams_.Prepare(request, std::make_unique<InboxSink>(inbox));
  streams_.Start(exchange);
  bool stopped = false;
  while (true) {
    const std::optional<absl::Status> end = inbox->end();
    for (const std::string& data : inbox->TakeEvents()) {
      if (!stopped) on_event(data);
    }
    if (end) return *end;
    wakeup_.Wait();
    if (!stopped && must_stop()) {
      stopped = true;
      streams_.Cancel(exchange);
    }
  }
}

}  // namespace tandem::terminal
