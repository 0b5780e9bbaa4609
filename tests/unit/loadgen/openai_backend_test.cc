#include "bench/serving/openai_backend.h"

#include <atomic>
#include <functional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "bench/serving/runner.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "httplib.h"
#include "nlohmann/json.hpp"

namespace tandem::loadgen {
namespace {

using ::testing::HasSubstr;

constexpr int32_t kOutputTokens = 4;
constexpr int kConnections = 48;

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

// An HTTP server whose answers to completions a test writes down, on a thread of its own.
class ScriptedHttp {
 public:
  using Script = std::function<void(const httplib::Request&, httplib::Response&)>;

  explicit ScriptedHttp(Script script) : script_(std::move(script)) {
    // One thread per connection: it keeps it until the connection is closed or idle for seconds.
    server_.new_task_queue = [] { return new httplib::ThreadPool(kConnections); };
    server_.Get("/v1/models", [](const httplib::Request&, httplib::Response& response) {
      response.set_content(R"({"data":[{"id":"m","max_model_len":100}]})", "application/json");
    });
    server_.Post("/v1/completions", script_);
    server_.Post("/v1/chat/completions", script_);
    port_ = server_.bind_to_any_port("127.0.0.1");
    thread_ = std::thread([this] { server_.listen_after_bind(); });
  }
  ~ScriptedHttp() {
    server_.stop();
    thread_.join();
  }
  httplib::Server& server() { return server_; }
  std::string url() const { return "http://127.0.0.1:" + std::to_string(port_); }

 private:
  httplib::Server server_;
  const Script script_;
  int port_ = 0;
  std::thread thread_;
};

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
  const ScriptedHttp http([&](const httplib::Request&, httplib::Response& response) {
    response.status = code;
    response.set_content(stream, "text/event-stream");
  });
  return Ask(http)[0];
}

TEST(OpenAiBackendTest, AWholeStreamIsComplete) {
  const RequestRecord record = AskForOne(WholeStream());
  EXPECT_EQ(Judge(record, true), Verdict::kComplete) << WhyNotComplete(record, true);
  EXPECT_EQ(record.chunks.size(), size_t{kOutputTokens});
  EXPECT_EQ(record.end.prompt_tokens, 6);
}

TEST(OpenAiBackendTest, ManyStreamsRunSideBySide) {
  const ScriptedHttp http([](const httplib::Request&, httplib::Response& response) {
    response.set_chunked_content_provider(
        "text/event-stream", [sent = 0](size_t, httplib::DataSink& sink) mutable {
          if (++sent < kOutputTokens) {
            const std::string token = Token();
            return sink.write(token.data(), token.size());
          }
          const std::string rest = Token("\"length\"") + Usage(6, kOutputTokens) + Event("[DONE]");
          sink.write(rest.data(), rest.size());
          sink.done();
          return true;
        });
  });
  int complete = 0;
  for (const RequestRecord& record : Ask(http, {}, Requests(40))) {
    if (Judge(record, true) == Verdict::kComplete) ++complete;
  }
  EXPECT_EQ(complete, 40);
}

TEST(OpenAiBackendTest, TheRequestHasItsIdKeyAndHeaders) {
  httplib::Request asked;
  const ScriptedHttp http([&asked](const httplib::Request& request, httplib::Response& response) {
    asked = request;
    response.set_content(WholeStream(), "text/event-stream");
  });
  Ask(http, {.api = OpenAiApi::kChat, .api_key = "secret", .headers = {"X-Test: 5"}});
  EXPECT_EQ(asked.path, "/v1/chat/completions");
  EXPECT_EQ(asked.get_header_value("x-request-id"), "bench-0");
  EXPECT_EQ(asked.get_header_value("Authorization"), "Bearer secret");
  EXPECT_EQ(asked.get_header_value("X-Test"), "5");
  EXPECT_EQ(nlohmann::json::parse(asked.body)["model"], "m");
}

TEST(OpenAiBackendTest, WithATokenizerPromptsAreIds) {
  httplib::Request asked;
  ScriptedHttp http([&asked](const httplib::Request& request, httplib::Response& response) {
    asked = request;
    response.set_content(WholeStream(), "text/event-stream");
  });
  http.server().Post("/tokenize", [](const httplib::Request&, httplib::Response& response) {
    nlohmann::json ids = nlohmann::json::array();
    for (int id = 500; id < 540; ++id) ids.push_back(id);
    response.set_content(nlohmann::json{{"tokens", ids}}.dump(), "application/json");
  });
  Ask(http);
  const auto prompt = nlohmann::json::parse(asked.body)["prompt"];
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
  std::atomic<bool> closed = false;
  std::vector<RequestRecord> records;
  {
    const ScriptedHttp http([&closed](const httplib::Request&, httplib::Response& response) {
      response.set_chunked_content_provider(
          "text/event-stream",
          [](size_t, httplib::DataSink& sink) {
            const std::string token = Token();
            return sink.write(token.data(), token.size());
          },
          [&closed](bool) { closed = true; });
    });
    Schedule schedule = Requests(1);
    schedule.requests[0].cancel_after = std::chrono::milliseconds(10);
    records = Ask(http, {}, schedule);
  }
  EXPECT_EQ(Judge(records[0], true), Verdict::kCancelled);
  EXPECT_TRUE(closed);
}

TEST(OpenAiBackendTest, AServerThatIsNotThereIsRefusedWithItsAddress) {
  const auto info = NewOpenAiBackend({.base_url = "http://127.0.0.1:1"})->Connect(Duration::zero());
  EXPECT_TRUE(absl::IsUnavailable(info.status()));
  EXPECT_THAT(std::string(info.status().message()), HasSubstr("http://127.0.0.1:1"));
  EXPECT_THAT(std::string(info.status().message()), HasSubstr("--base-url"));
}

}  // namespace
}  // namespace tandem::loadgen
