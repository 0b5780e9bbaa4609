#include "bench/serving/openai_backend.h"

#include <thread>
#include <utility>

#include "base/json.h"
#include "base/status.h"
#include "bench/serving/http_streams.h"
#include "bench/serving/openai_messages.h"
#include "bench/serving/prompt.h"
#include "bench/serving/sse_parser.h"
#include "nlohmann/json.hpp"

namespace tandem::loadgen {
namespace {

constexpr long kHttpOk = 200;

// Makes an answer of the bytes of one exchange.
class AnswerReader final : public HttpSink {
 public:
  explicit AnswerReader(CallObserver& observer)
      : observer_(observer), parser_([this](std::string_view data) { OnEvent(data); }) {}

  void OnBody(long code, std::string_view bytes) override {
    constexpr size_t kMostErrorBytes = 4096;
    if (code == kHttpOk) {
      parser_.Feed(bytes);
    } else if (error_body_.size() < kMostErrorBytes) {
      error_body_ += bytes;
    }
  }
  void OnEnd(long code, absl::Status status) override {
    const TimePoint now = std::chrono::steady_clock::now();
    if (status.ok()) status = StatusOfAnswer(code, error_body_);
    observer_.OnEnd(now, answer_.Take(std::move(status)));
  }

 private:
  // Each event with output counts as one token: how many it has, only the usage at the end says.
  void OnEvent(std::string_view data) {
    const TimePoint now = std::chrono::steady_clock::now();
    if (answer_.Add(data)) observer_.OnTokens(now, 1);
  }

  CallObserver& observer_;
  SseParser parser_;
  OpenAiAnswer answer_;
  std::string error_body_;
};

class OpenAiCall final : public Call {
 public:
  OpenAiCall(HttpStreams& streams, std::shared_ptr<HttpExchange> exchange)
      : streams_(streams), exchange_(std::move(exchange)) {}
  void Start() override { streams_.Start(exchange_); }
  void Cancel() override { streams_.Cancel(exchange_); }

 private:
  HttpStreams& streams_;
  const std::shared_ptr<HttpExchange> exchange_;
};

class OpenAiBackend final : public Backend {
 public:
  explicit OpenAiBackend(OpenAiBackendOptions options) : options_(std::move(options)) {
    while (options_.base_url.ends_with('/')) options_.base_url.pop_back();
    if (options_.endpoint.empty()) {
      options_.endpoint =
          options_.api == OpenAiApi::kChat ? "/v1/chat/completions" : "/v1/completions";
    }
    if (!options_.api_key.empty()) {
      options_.headers.push_back("Authorization: Bearer " + options_.api_key);
    }
    options_.headers.push_back("Content-Type: application/json");
    options_.headers.push_back("Expect:");  // else long bodies wait for a 100 Continue
  }

  std::string_view name() const override {
    return options_.api == OpenAiApi::kChat ? "openai-chat" : "openai";
  }

  absl::StatusOr<ServerInfo> Connect(Duration patience) override {
    constexpr std::chrono::milliseconds kRetryInterval(100);
    const TimePoint deadline = std::chrono::steady_clock::now() + patience;
    absl::StatusOr<ServerInfo> info = AskModels();
    while (absl::IsUnavailable(info.status()) && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(kRetryInterval);
      info = AskModels();
    }
    RETURN_IF_ERROR(info.status());
    model_ = info->model;
    if (options_.api == OpenAiApi::kCompletions) FetchPool();
    // A prompt of text may have more tokens than words: the server itself has to judge its length.
    if (pool_.empty()) info->max_context_tokens = 0;
    return info;
  }

  std::unique_ptr<Call> Prepare(const ScheduledRequest& request, const std::string& id,
                                CallObserver& observer) override {
    HttpRequest http = {.url = options_.base_url + options_.endpoint,
                        .headers = options_.headers,
                        .timeout = options_.request.timeout,
                        .tls = options_.tls};
    http.headers.push_back("x-request-id: " + id);
    http.body = MakeOpenAiBody({.api = options_.api,
                                .model = model_,
                                .options = options_.request,
                                .extra_json = options_.extra_json},
                               request, pool_);
    return std::make_unique<OpenAiCall>(
        streams_, streams_.Prepare(http, std::make_unique<AnswerReader>(observer)));
  }

 private:
  absl::StatusOr<ServerInfo> AskModels() const {
    const auto answer = Fetch({.url = options_.base_url + "/v1/models",
                               .headers = options_.headers,
                               .tls = options_.tls});
    if (absl::IsUnavailable(answer.status())) {
      return Annotate(answer.status(), "no server answers: give its address with --base-url");
    }
    RETURN_IF_ERROR(answer.status());
    RETURN_IF_ERROR(StatusOfAnswer(answer->code, answer->body));
    return ParseModels(answer->body, options_.model);
  }

  // Stays empty where the server has no /tokenize of this kind.
  void FetchPool() {
    const nlohmann::json body = {
        {"model", model_}, {"prompt", PoolText()}, {"add_special_tokens", false}};
    const auto answer = Fetch({.url = options_.base_url + "/tokenize",
                               .headers = options_.headers,
                               .body = JsonText(body),
                               .tls = options_.tls});
    if (!answer.ok() || answer->code != kHttpOk) return;
    constexpr size_t kLeast = 16;
    std::vector<int32_t> pool = MakeTokenPool(ParseTokens(answer->body));
    if (pool.size() >= kLeast) pool_ = std::move(pool);
  }

  OpenAiBackendOptions options_;
  std::string model_;
  std::vector<int32_t> pool_;
  HttpStreams streams_;
};

}  // namespace

std::unique_ptr<Backend> NewOpenAiBackend(OpenAiBackendOptions options) {
  return std::make_unique<OpenAiBackend>(std::move(options));
}

}  // namespace tandem::loadgen
