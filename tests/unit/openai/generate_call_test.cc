#include "server/openai/generate_call.h"

#include <memory>
#include <optional>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/openai/generation.h"
#include "server/openai/http_answers.h"
#include "tests/support/router_fixture.h"

namespace tandem::openai::generate_call_test {
namespace {

using testing::HasSubstr;

// What a client of HTTP gets.
struct Received {
  std::optional<HttpResponse> whole;
  std::optional<HttpStreamStart> start;
  std::string streamed;
  bool closed = false;
  bool aborted = false;
  bool takes_more = true;  // of live parts; whole ones are only bounded for all streams together
};

class FakeHttpStream final : public HttpStream {
 public:
  explicit FakeHttpStream(Received& received) : received_(received) {}
  bool Push(std::string part, Pace pace) override {
    if (!received_.takes_more && pace == Pace::kLive) return false;
    received_.streamed += part;
    return true;
  }
  bool HasUnwritten() const override { return false; }
  void Close() override { received_.closed = true; }
  void Abort(std::string last_part) override {
    received_.streamed += last_part;
    received_.aborted = true;
  }

 private:
  Received& received_;
};

class FakeHttpExchange final : public HttpExchange {
 public:
  explicit FakeHttpExchange(Received& received) : received_(received) {}
  const HttpRequest& request() const override { return request_; }
  std::string TakeBody() override { return ""; }
  void Respond(HttpResponse response) override {
    EXPECT_FALSE(received_.whole.has_value() || received_.start.has_value());
    received_.whole = std::move(response);
  }
  std::shared_ptr<HttpStream> StartStream(HttpStreamStart start) override {
    EXPECT_FALSE(received_.whole.has_value() || received_.start.has_value());
    received_.start = std::move(start);
    return std::make_shared<FakeHttpStream>(received_);
  }
  void OnGone(std::function<void()> gone) override { gone_ = std::move(gone); }
  void Leave() { gone_(); }

 private:
  Received& received_;
  const HttpRequest request_;
  std::function<void()> gone_;
};

class GenerateCallTest : public RouterFixture {
 protected:
  std::weak_ptr<GenerateCall> Start(AnswerOptions options,
                                    const std::vector<v1::GenerateRequest>& requests) {
    auto answer = std::make_unique<Answer>(
        AnswerHead{.id = "r", .created = 1, .model = "sample", .fingerprint = "f"}, options,
        *format_);
    for (const v1::GenerateRequest& request : requests) {
      answer->AddPrompt({}, {.max_tokens = request.max_tokens()}, 1);
    }
    return StartWriter(std::move(answer), requests);
  }
  std::weak_ptr<GenerateCall> StartWriter(std::unique_ptr<AnswerWriter> writer,
                                          const std::vector<v1::GenerateRequest>& requests) {
    exchange_ = std::make_shared<FakeHttpExchange>(received_);
    auto call =
        std::make_shared<GenerateCall>(router_, loop_, clock_, exchange_, "r", std::move(writer));
    call->Start(requests);
    loop_.RunReady();
    return call;
  }
  static v1::GenerateRequest Unified() {
    v1::GenerateRequest request = Ask(v1::ROUTE_UNIFIED);
    return request;
  }
  void SetUp() override { Join("u0", v1::WORKER_ROLE_UNIFIED); }

  const TokenTexts texts_{nullptr};
  const std::unique_ptr<AnswerFormat> format_ = NewCompletionFormat(texts_);
  Received received_;
  std::shared_ptr<FakeHttpExchange> exchange_;
};

TEST_F(GenerateCallTest, AWholeAnswerComesWithItsRoute) {
  const auto call = Start({}, {Unified()});
  Say("generate u0", {'h', 'i'});
  EXPECT_FALSE(received_.whole.has_value());
  Finish("generate u0", kLength);
  ASSERT_TRUE(received_.whole.has_value());
  EXPECT_EQ(received_.whole->status, 200);
  EXPECT_THAT(received_.whole->body, HasSubstr(R"("text":"hi")"));
  std::map<std::string, std::string> headers;
  for (const HttpHeader& header : received_.whole->headers) headers[header.name] = header.value;
  EXPECT_EQ(headers["x-request-id"], "r");
  EXPECT_EQ(headers["x-tandem-route"], "unified");
  EXPECT_TRUE(call.expired()) << "nothing keeps a call that has ended";
}

TEST_F(GenerateCallTest, AStreamBeginsWithTheFirstToken) {
  const auto call = Start({.stream = true}, {Unified()});
  EXPECT_FALSE(received_.start.has_value());
  Say("generate u0", {'h'});
  ASSERT_TRUE(received_.start.has_value());
  EXPECT_THAT(received_.streamed, HasSubstr(R"("text":"h")"));
  Finish("generate u0", kLength);
  EXPECT_THAT(received_.streamed, testing::EndsWith("data: [DONE]\n\n"));
  EXPECT_TRUE(received_.closed);
  EXPECT_TRUE(call.expired());
}

TEST_F(GenerateCallTest, AStreamWithoutATokenBeginsAfterAWhile) {
  const auto call = Start({.stream = true}, {Unified()});
  for (int i = 0; i < 9; ++i) {
    Beat("u0");
    Pass(std::chrono::milliseconds(500));
  }
  EXPECT_FALSE(received_.start.has_value());
  Beat("u0");
  Pass(std::chrono::milliseconds(500));
  ASSERT_TRUE(received_.start.has_value());
  EXPECT_EQ(received_.streamed, "");
  Say("generate u0", {'h'});
  Finish("generate u0", kLength);
  EXPECT_TRUE(received_.closed);
}

// An API whose streams begin with an event before the first token.
class GreetingWriter final : public AnswerWriter {
 public:
  const AnswerStyle& style() const override { return kStyle; }
  bool streams() const override { return true; }
  std::string Begin() override { return "hello;"; }
  std::string Add(size_t, const v1::GenerateResponse& event) override {
    return event.has_chunk() ? event.chunk().text() + ";" : std::string();
  }
  std::string Finish() override { return "end"; }
  std::string StreamError(const absl::Status&) override { return "error"; }
  const std::optional<v1::ChoiceFinish>& first_finish() const override { return finish_; }

 private:
  static constexpr AnswerStyle kStyle = {
      .error = ErrorResponse, .id_header = "my-id", .keep_alive = "ping"};
  const std::optional<v1::ChoiceFinish> finish_;
};

TEST_F(GenerateCallTest, AStreamBeginsWithWhatItsApiSaysFirst) {
  StartWriter(std::make_unique<GreetingWriter>(), {Unified()});
  Say("generate u0", {'h'});
  EXPECT_EQ(received_.streamed, "hello;h;");
  ASSERT_TRUE(received_.start.has_value());
  EXPECT_EQ(received_.start->keep_alive_part, "ping");
  std::map<std::string, std::string> headers;
  for (const HttpHeader& header : received_.start->headers) headers[header.name] = header.value;
  EXPECT_EQ(headers["x-request-id"], "r");
  EXPECT_EQ(headers["my-id"], "r");
  Finish("generate u0", kLength);
  EXPECT_EQ(received_.streamed, "hello;h;end");
}

TEST_F(GenerateCallTest, AStreamWithoutATokenSaysThatItHasBegun) {
  StartWriter(std::make_unique<GreetingWriter>(), {Unified()});
  for (int i = 0; i < 10; ++i) {
    Beat("u0");
    Pass(std::chrono::milliseconds(500));
  }
  EXPECT_EQ(received_.streamed, "hello;");
  Say("generate u0", {'h'});
  Finish("generate u0", kLength);
  EXPECT_EQ(received_.streamed, "hello;h;end");
}

TEST_F(GenerateCallTest, AnErrorBeforeTheFirstTokenHasAStatus) {
  v1::GenerateRequest bad = Unified();
  bad.set_n(0);
  Start({.stream = true}, {bad});
  ASSERT_TRUE(received_.whole.has_value());
  EXPECT_EQ(received_.whole->status, 400);
  EXPECT_THAT(received_.whole->body, HasSubstr("n=0"));
}

TEST_F(GenerateCallTest, AnErrorAfterTheFirstTokenIsAnEvent) {
  const auto call = Start({.stream = true}, {Unified()});
  Say("generate u0", {'h'});
  End("generate u0", InvalidArgument("the worker says no"), kWorker);
  EXPECT_THAT(received_.streamed, HasSubstr(R"(data: {"error":{"message":)"));
  EXPECT_THAT(received_.streamed, testing::EndsWith("data: [DONE]\n\n"));
  EXPECT_TRUE(received_.closed);
  EXPECT_TRUE(call.expired());
}

TEST_F(GenerateCallTest, AClientThatGoesCancelsItsRequests) {
  const auto call = Start({.stream = true}, {Unified(), Unified()});
  EXPECT_EQ(router_.Status().requests_in_flight(), 2);
  exchange_->Leave();
  loop_.RunReady();
  EXPECT_EQ(router_.Status().requests_in_flight(), 0);
  EXPECT_TRUE(call.expired());
}

TEST_F(GenerateCallTest, APromptThatIsRefusedTakesTheOthersAlong) {
  v1::GenerateRequest bad = Unified();
  bad.set_n(0);
  const auto call = Start({}, {Unified(), bad, Unified()});
  ASSERT_TRUE(received_.whole.has_value());
  EXPECT_EQ(received_.whole->status, 400);
  EXPECT_EQ(router_.Status().requests_in_flight(), 0);
  EXPECT_TRUE(call.expired());
}

TEST_F(GenerateCallTest, OverloadSaysWhenToComeBack) {
  v1::GenerateRequest many = Unified();
  many.set_n(9);
  Start({}, {many});
  ASSERT_TRUE(received_.whole.has_value());
  EXPECT_EQ(received_.whole->status, 429);
  std::map<std::string, std::string> headers;
  for (const HttpHeader& header : received_.whole->headers) headers[header.name] = header.value;
  EXPECT_EQ(headers["retry-after"], "1");
  EXPECT_EQ(headers["x-should-retry"], "true");
}

TEST_F(GenerateCallTest, AReaderThatIsTooSlowIsDisconnected) {
  const auto call = Start({.stream = true}, {Unified()});
  Say("generate u0", {'h'});
  received_.takes_more = false;
  Say("generate u0", {'i'});
  EXPECT_TRUE(received_.aborted);
  EXPECT_FALSE(received_.closed);
  EXPECT_EQ(router_.Status().requests_in_flight(), 0);
  EXPECT_TRUE(call.expired());
}

}  // namespace
}  // namespace tandem::openai::generate_call_test
