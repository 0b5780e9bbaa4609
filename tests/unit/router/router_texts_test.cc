// Requests whose prompts are texts: where they are tokenized, and how the router drains meanwhile.

#include <atomic>
#include <chrono>
#include <string>
#include <thread>
#include <utility>

#include "router/router.h"
#include "tests/support/blocking_tokenizer.h"
#include "tests/support/router_fixture.h"

namespace tandem::router_texts_test {
namespace {

using std::chrono::seconds;
using ::testing::ElementsAre;
using ::testing::IsEmpty;

using RouterTest = RouterFixture;  // one suite in several files

v1::GenerateRequest AskInText(const std::string& text) {
  v1::GenerateRequest request;
  request.set_text(text);
  request.set_max_tokens(4);
  request.set_route(v1::ROUTE_DISAGGREGATED);
  return request;
}

// Submit runs on the threads that take the workers' heartbeats, too.
TEST_F(RouterTest, SubmitItselfTokenizesNoText) {
  const BlockingTokenizer tokenizer("");
  Router router(Options(), Parts(tokenizer));
  ASSERT_TRUE(router.Submit(AskInText("abc"), kNoDeadline, stream_).ok());
  EXPECT_EQ(tokenizer.encoded(), 0);
  loop_.RunReady();
  EXPECT_EQ(tokenizer.encoded(), 1);
  EXPECT_THAT(workers_.reservations.back()->request.prompt(), ElementsAre('a', 'b', 'c'));
}

TEST_F(RouterTest, APromptThatTurnsOutTooLongEndsWithInvalidArgument) {
  Submit(AskInText(std::string(100, 'a')));
  ExpectFailed(absl::StatusCode::kInvalidArgument, "prompt has 100 tokens");
}

TEST_F(RouterTest, ARequestWhoseClientLeavesWhileItsTextWaitsEndsOnce) {
  BlockingTokenizer tokenizer("abc");
  RouterOptions options = Options();
  options.tokenizing.threads = 1;
  {
    Router router(options, Parts(tokenizer));
    const auto id = router.Submit(AskInText("abc"), kNoDeadline, stream_);
    ASSERT_TRUE(id.ok()) << id.status();
    loop_.RunReady();
    tokenizer.WaitUntilBlocked();
    EXPECT_EQ(router.Status().requests_in_flight(), 1);
    EXPECT_EQ(router.Status().tokenizing().short_texts(), 1);
    router.Cancel(*id, Cancelled("the client went away"));
    loop_.RunReady();
    ASSERT_TRUE(stream_.end.has_value());
    EXPECT_EQ(stream_.end->code(), absl::StatusCode::kCancelled);
    EXPECT_EQ(router.Status().requests_in_flight(), 0);
    tokenizer.Unblock();
    while (router.Status().tokenizing().short_texts() > 0) std::this_thread::yield();
    loop_.RunReady();
  }
  EXPECT_THAT(workers_.Open(), IsEmpty());
}

TEST_F(RouterTest, DrainingWaitsForTextsThatAreBeingTokenized) {
  BlockingTokenizer tokenizer("abc");
  RouterOptions options = Options();
  options.tokenizing.threads = 1;
  Router router(options, Parts(tokenizer));
  ASSERT_TRUE(router.Submit(AskInText("abc"), kNoDeadline, stream_).ok());
  loop_.RunReady();
  tokenizer.WaitUntilBlocked();
  bool drained = false;
  router.Drain(clock_.Now() + seconds(1), [&drained] { drained = true; });
  loop_.RunReady();
  EXPECT_FALSE(drained);
  Pass(seconds(1));
  EXPECT_TRUE(drained);
  EXPECT_EQ(stream_.end.value_or(absl::OkStatus()).code(), absl::StatusCode::kUnavailable);
  tokenizer.Unblock();
  while (router.Status().tokenizing().short_texts() > 0) std::this_thread::yield();
  loop_.RunReady();
}

// The clients of these wait as well, though they have no request yet.
TEST_F(RouterTest, DrainingWaitsForTextsWithoutARequest) {
  BlockingTokenizer tokenizer("abc");
  RouterOptions options = Options();
  options.tokenizing.threads = 1;
  Router router(options, Parts(tokenizer));
  const auto tokenize = [&router](const char* text, Router::Tokenized done) {
    router.Tokenize(TokenizeWork(text, EncodeOptions()), nullptr, std::move(done));
  };
  std::atomic<bool> answered = false;
  tokenize("abc", [&answered](const auto& ids) { answered = ids.ok(); });
  tokenizer.WaitUntilBlocked();
  absl::Status waiting;
  tokenize("def", [&waiting](const auto& ids) { waiting = ids.status(); });
  bool drained = false;
  router.Drain(clock_.Now() + seconds(1), [&drained] { drained = true; });
  EXPECT_EQ(waiting.code(), absl::StatusCode::kUnavailable) << "it need not wait for its turn";
  absl::Status late;
  tokenize("ghi", [&late](const auto& ids) { late = ids.status(); });
  EXPECT_EQ(late.code(), absl::StatusCode::kUnavailable);
  Pass(seconds(1));
  EXPECT_FALSE(drained) << "nobody has answered the first client";
  tokenizer.Unblock();
  while (!drained) {
    loop_.RunReady();
    std::this_thread::yield();
  }
  EXPECT_TRUE(answered);
}

}  // namespace
}  // namespace tandem::router_texts_test
