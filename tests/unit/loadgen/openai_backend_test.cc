#include "bench/serving/openai_backend.h"

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/synchronization/notification.h"
#include "base/json.h"
#include "bench/serving/runner.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "nlohmann/json.hpp"
#include "server/http/http_server.h"
#include "tests/support/wait_limit.h"

namespace tandem::loadgen::openai_backend_test {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kOutputTokens = 4;

std::string Event(const std::string& data) { return "data: " + data + "\n\n"; }

std::string Token(const std::string& reason = "null") {
  return Event(R"({"choices":[{"index":0,"text":"x","finish_reason":)" + reason + "}]}");
}

std::string Usage(int32_t prompt, int32_t output) {
  return Event(R"({"choices":[],"usage":{"prompt_tokens":)" + std::to_string(prompt) +
               R"(,"completion_tokens":)" + std::to_string(output) + "}}");
}

std::string WholeStream() {
  return Token() + Token() + Token() + Token("\"length\"") + Usage(6, kOutputTokens) +
         Event("[DONE]");
}

// An HTTP server whose answers to completions a test writes down.
class ScriptedHttp {
 public:
  using Exchange = std::shared_ptr<HttpExchange>;

  explicit ScriptedHttp(HttpHandler script, HttpHandler tokenize = nullptr) {
    const HttpHandler models = [](const Exchange& exchange) {
      exchange->Respond({.body = R"({"data":[{"id":"m","max_model_len":100}]})"});
    };
    std::vector<HttpRoute> routes = {
        {.method = "GET", .path = "/v1/models", .handler = models},
        {.method = "POST", .path = "/v1/completions", .handler = script},
        {.method = "POST", .path = "/v1/chat/completions", .handler = script}};
    if (tokenize) {
      routes.push_back({.method = "POST", .path = "/tokenize", .handler = std::move(tokenize)});
    }
    auto server = HttpServer::Start({}, std::move(routes));
    EXPECT_TRUE(server.ok()) << server.status();
    server_ = *std::move(server);
  }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(server_->port()); }

 private:
  std::unique_ptr<HttpServer> server_;
};

using Exchange = ScriptedHttp::Exchange;

// Answers with this text as a whole stream of events.
HttpHandler Answering(std::string stream, int code = 200) {
  return [stream = std::move(stream), code](const Exchange& exchange) {
    exchange->Respond({.status = code, .body = stream, .content_type = "text/event-stream"});
  };
}

Schedule Requests(int count) {
  Schedule schedule;
  for (int i = 0; i < count; ++i) {
    ScheduledRequest request;
    request.prompt = {{static_cast<uint64_t>(i), 6}};
    request.output_tokens = kOutputTokens;
    schedule.requests.push_back(request);
  }
  return schedule;
}

std::vector<RequestRecord> Ask(const ScriptedHttp& http, OpenAiBackendOptions options = {},
                               const Schedule& schedule = Requests(1)) {
  options.base_url = http.url() + "/";
  const auto backend = NewOpenAiBackend(options);
  const auto info = backend->Connect(Duration::zero());
  EXPECT_TRUE(info.ok()) << info.status();
  RunCounts counts;
  return Run(schedule, {}, *backend, counts).records;
}

RequestRecord AskForOne(const std::string& stream, int code = 200) {
  const ScriptedHttp http(Answering(stream, code));
  return Ask(http)[0];
}

TEST(OpenAiBackendTest, AWholeStreamIsComplete) {
  const RequestRecord record = AskForOne(WholeStream());
  EXPECT_EQ(Judge(record, true), Verdict::kComplete) << WhyNotComplete(record, true);
  EXPECT_EQ(record.chunks.size(), size_t{kOutputTokens});
  EXPECT_EQ(record.end.prompt_tokens, 6);
}

TEST(OpenAiBackendTest, ManyStreamsRunSideBySide) {
  const ScriptedHttp http([](const Exchange& exchange) {
    const std::shared_ptr<HttpStream> stream = exchange->StartStream({});
    for (int i = 1; i < kOutputTokens; ++i) EXPECT_TRUE(stream->Push(Token(), Pace::kLive));
    const std::string rest = Token("\"length\"") + Usage(6, kOutputTokens) + Event("[DONE]");
    EXPECT_TRUE(stream->Push(rest, Pace::kLive));
    stream->Close();
  });
  int complete = 0;
  for (const RequestRecord& record : Ask(http, {}, Requests(40))) {
    if (Judge(record, true) == Verdict::kComplete) ++complete;
  }
  EXPECT_EQ(complete, 40);
}

TEST(OpenAiBackendTest, TheRequestHasItsIdKeyAndHeaders) {
  HttpRequest asked;
  const ScriptedHttp http([&asked](const Exchange& exchange) {
    asked = exchange->request();
    Answering(WholeStream())(exchange);
  });
  Ask(http, {.api = OpenAiApi::kChat, .api_key = "secret", .headers = {"X-Test: 5"}});
  EXPECT_EQ(asked.path, "/v1/chat/completions");
  EXPECT_EQ(asked.Header("x-request-id"), "bench-0");
  EXPECT_EQ(asked.Header("Authorization"), "Bearer secret");
  EXPECT_EQ(asked.Header("X-Test"), "5");
  EXPECT_EQ(ParseJson(asked.body)["model"], "m");
}

TEST(OpenAiBackendTest, WithATokenizerPromptsAreIds) {
  HttpRequest asked;
  const ScriptedHttp http(
      [&asked](const Exchange& exchange) {
        asked = exchange->request();
        Answering(WholeStream())(exchange);
      },
      [](const Exchange& exchange) {
        nlohmann::json ids = nlohmann::json::array();
        for (int id = 500; id < 540; ++id) ids.push_back(id);
        exchange->Respond({.body = nlohmann::json{{"tokens", ids}}.dump()});
      });
  Ask(http);
  const auto prompt = ParseJson(asked.body)["prompt"];
  ASSERT_EQ(prompt.size(), 6u);
  for (const auto& id : prompt) EXPECT_GE(id, 500);
}

TEST(OpenAiBackendTest, StreamsThatEndEarlyOrWithAnErrorAreNeverComplete) {
  EXPECT_EQ(Judge(AskForOne(Token() + Token()), true), Verdict::kTruncated);
  EXPECT_EQ(Judge(AskForOne(Token("\"length\"") + Usage(6, kOutputTokens)), true),
            Verdict::kTruncated);
  const RequestRecord error =
      AskForOne(Token() + Event(R"({"error":{"message":"engine died"}})") + Event("[DONE]"));
  EXPECT_EQ(Judge(error, true), Verdict::kFailed);
  EXPECT_THAT(WhyNotComplete(error, true), HasSubstr("engine died"));
  const RequestRecord fewer =
      AskForOne(Token("\"stop\"") + Usage(6, kOutputTokens - 1) + Event("[DONE]"));
  EXPECT_EQ(Judge(fewer, true), Verdict::kWrongLength);
}

TEST(OpenAiBackendTest, CodesOfHttpBecomeStatuses) {
  const std::pair<int, absl::StatusCode> codes[] = {
      {400, absl::StatusCode::kInvalidArgument}, {401, absl::StatusCode::kPermissionDenied},
      {404, absl::StatusCode::kNotFound},        {429, absl::StatusCode::kResourceExhausted},
      {500, absl::StatusCode::kInternal},        {503, absl::StatusCode::kUnavailable}};
  for (const auto& [http, code] : codes) {
    const RequestRecord record = AskForOne(R"({"error":{"message":"because"}})", http);
    EXPECT_EQ(record.end.status.code(), code) << http;
    EXPECT_THAT(std::string(record.end.status.message()), HasSubstr("because"));
    EXPECT_EQ(Judge(record, true), Verdict::kFailed);
  }
}

TEST(OpenAiBackendTest, ACancelledStreamIsClosed) {
  absl::Notification closed;
  std::shared_ptr<HttpStream> stream;  // of one token, and without an end
  std::vector<RequestRecord> records;
  {
    const ScriptedHttp http([&](const Exchange& exchange) {
      exchange->OnGone([&closed] { closed.Notify(); });
      stream = exchange->StartStream({});
      EXPECT_TRUE(stream->Push(Token(), Pace::kLive));
    });
    Schedule schedule = Requests(1);
    schedule.requests[0].cancel_after = std::chrono::milliseconds(10);
    records = Ask(http, {}, schedule);
    Await(closed);
  }
  EXPECT_EQ(Judge(records[0], true), Verdict::kCancelled);
}

TEST(OpenAiBackendTest, AServerThatIsNotThereIsRefusedWithItsAddress) {
  const auto info = NewOpenAiBackend({.base_url = "http://127.0.0.1:1"})->Connect(Duration::zero());
  EXPECT_TRUE(absl::IsUnavailable(info.status()));
  EXPECT_THAT(std::string(info.status().message()), HasSubstr("http://127.0.0.1:1"));
  EXPECT_THAT(std::string(info.status().message()), HasSubstr("--base-url"));
}

}  // namespace
}  // namespace tandem::loadgen::openai_backend_test
