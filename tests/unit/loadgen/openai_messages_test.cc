#include "bench/serving/openai_messages.h"

#include <string>
#include <vector>

#include "base/json.h"
#include "bench/serving/openai_body.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::loadgen::openai_messages_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

ScheduledRequest Request() {
  ScheduledRequest request;
  request.prompt = {{1, 5}};
  request.output_tokens = 9;
  return request;
}

TEST(OpenAiBodyTest, ACompletionHasTokenIdsWhereTheTokenizerIsKnownAndTextOtherwise) {
  OpenAiBody body;
  body.model = "m";
  auto json = ParseJson(MakeOpenAiBody(body, Request(), {40, 41, 42}));
  EXPECT_EQ(json["model"], "m");
  EXPECT_EQ(json["prompt"].size(), 5u);
  EXPECT_GE(json["prompt"][0], 40);
  EXPECT_EQ(json["max_tokens"], 9);
  EXPECT_EQ(json["ignore_eos"], true);
  EXPECT_EQ(json["stream"], true);
  EXPECT_EQ(json["stream_options"]["include_usage"], true);
  json = ParseJson(MakeOpenAiBody(body, Request(), {}));
  EXPECT_EQ(json["prompt"].get<std::string>().size(), 5u * 3 - 1);
}

TEST(OpenAiBodyTest, AChatHasOneMessageAndExtraFieldsReplaceOurs) {
  OpenAiBody body = {.api = OpenAiApi::kChat, .extra_json = "{\"temperature\":0.5,\"top_k\":3}"};
  body.options.ignore_eos = false;
  const auto json = ParseJson(MakeOpenAiBody(body, Request(), {40, 41, 42}));
  EXPECT_EQ(json["messages"][0]["role"], "user");
  EXPECT_TRUE(json["messages"][0]["content"].is_string());
  EXPECT_EQ(json["max_completion_tokens"], 9);
  EXPECT_FALSE(json.contains("ignore_eos"));
  EXPECT_EQ(json["temperature"], 0.5);
  EXPECT_EQ(json["top_k"], 3);
  EXPECT_TRUE(CheckExtraBody("").ok());
  EXPECT_TRUE(CheckExtraBody("{}").ok());
  for (const char* text : {"[]", "5", "{", "top_k=3"}) EXPECT_FALSE(CheckExtraBody(text).ok());
}

TEST(ParseModelsTest, TakesTheNamedModelOrTheFirst) {
  const std::string json =
      R"({"object":"list","data":[{"id":"a","max_model_len":100},{"id":"b"}]})";
  EXPECT_EQ(ParseModels(json, "")->model, "a");
  EXPECT_EQ(ParseModels(json, "")->max_context_tokens, 100);
  EXPECT_EQ(ParseModels(json, "b")->max_context_tokens, 0);
  const auto missing = ParseModels(json, "c");
  EXPECT_TRUE(absl::IsNotFound(missing.status()));
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("a, b"));
  for (const char* text : {"", "[]", "{}", "{\"data\":[]}", "{\"data\":5}"}) {
    EXPECT_TRUE(absl::IsInvalidArgument(ParseModels(text, "").status())) << text;
  }
}

TEST(ParseTokensTest, TakesIdsAndNothingElse) {
  EXPECT_THAT(ParseTokens("{\"count\":2,\"tokens\":[5,6]}"), ElementsAre(5, 6));
  EXPECT_TRUE(ParseTokens("{\"tokens\":[{\"id\":5}]}").empty());
  EXPECT_TRUE(ParseTokens("not json").empty());
}

TEST(ErrorTextTest, TakesTheMessageOrTheStartOfTheBody) {
  EXPECT_EQ(ErrorText("{\"error\":{\"message\":\"too long\",\"code\":400}}"), "too long");
  EXPECT_EQ(ErrorText("{\"error\":\"Unauthorized\"}"), "Unauthorized");
  EXPECT_EQ(ErrorText("<html>"), "<html>");
  EXPECT_EQ(ErrorText(std::string(5000, 'x')).size(), 300u);
}

// Which events bring output, and how the answer ends.
TEST(OpenAiAnswerTest, ACompletionIsWholeOnceItHasAReasonAndIsDone) {
  OpenAiAnswer answer;
  EXPECT_TRUE(answer.Add(R"({"choices":[{"index":0,"text":"a","finish_reason":null}]})"));
  EXPECT_FALSE(answer.Add(R"({"choices":[{"index":0,"text":"","finish_reason":null}]})"));
  EXPECT_TRUE(answer.Add(R"({"choices":[{"index":0,"text":"b","finish_reason":"length"}]})"));
  EXPECT_FALSE(answer.Add(R"({"choices":[],"usage":{"prompt_tokens":7,"completion_tokens":2,)"
                          R"("prompt_tokens_details":{"cached_tokens":4}}})"));
  EXPECT_FALSE(answer.Add("[DONE]"));
  const CallEnd end = answer.Take(absl::OkStatus());
  EXPECT_TRUE(end.status.ok());
  EXPECT_TRUE(end.whole);
  EXPECT_EQ(end.finish_reason, "length");
  EXPECT_EQ(end.prompt_tokens, 7);
  EXPECT_EQ(end.output_tokens, 2);
  EXPECT_EQ(end.cached_tokens, 4);
  EXPECT_FALSE(end.counts_are_exact);
}

// A server that sends the role ahead would seem to be faster than it is.
TEST(OpenAiAnswerTest, TheRoleOfAChatIsNoOutput) {
  OpenAiAnswer answer;
  EXPECT_FALSE(answer.Add(R"({"choices":[{"delta":{"role":"assistant","content":""}}]})"));
  EXPECT_TRUE(answer.Add(R"({"choices":[{"delta":{"content":"x"}}]})"));
  EXPECT_TRUE(answer.Add(R"({"choices":[{"delta":{"reasoning":"x"}}]})"));
  EXPECT_FALSE(answer.Add(R"({"choices":[{"delta":{},"finish_reason":"stop"}]})"));
}

TEST(OpenAiAnswerTest, AStreamWithoutReasonOrWithoutDoneIsNotWhole) {
  OpenAiAnswer no_reason;
  no_reason.Add(R"({"choices":[{"text":"a"}]})");
  no_reason.Add("[DONE]");
  EXPECT_FALSE(no_reason.Take(absl::OkStatus()).whole);
  OpenAiAnswer not_done;
  not_done.Add(R"({"choices":[{"text":"a","finish_reason":"length"}]})");
  EXPECT_FALSE(not_done.Take(absl::OkStatus()).whole);
}

TEST(OpenAiAnswerTest, AnErrorInTheStreamIsTheEndOfTheCall) {
  OpenAiAnswer answer;
  answer.Add(R"({"choices":[{"text":"a","finish_reason":"length"}]})");
  EXPECT_FALSE(answer.Add(R"({"error":{"message":"engine died"}})"));
  answer.Add("[DONE]");
  const CallEnd end = answer.Take(absl::OkStatus());
  EXPECT_TRUE(absl::IsInternal(end.status));
  EXPECT_THAT(std::string(end.status.message()), HasSubstr("engine died"));
  OpenAiAnswer garbage;
  EXPECT_FALSE(garbage.Add("<html>"));
  EXPECT_TRUE(absl::IsDataLoss(garbage.Take(absl::OkStatus()).status));
}

}  // namespace
}  // namespace tandem::loadgen::openai_messages_test
