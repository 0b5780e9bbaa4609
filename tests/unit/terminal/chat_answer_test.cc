#include "server/terminal/chat_answer.h"

#include <string>
#include <vector>

#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::terminal::chat_answer_test {
namespace {

using ::testing::HasSubstr;

std::string Delta(const std::string& delta) { return R"({"choices":[{"delta":)" + delta + "}]}"; }

constexpr char kStop[] = R"({"choices":[{"delta":{},"finish_reason":"stop"}]})";

// The texts of the pieces that these events bring.
std::vector<std::string> Texts(ChatAnswer& answer, const std::vector<std::string>& events) {
  std::vector<std::string> texts;
  for (const std::string& event : events) {
    for (const AnswerPiece& piece : answer.Add(event)) texts.push_back(piece.text);
  }
  return texts;
}

TEST(ChatAnswerTest, ContentIsPutTogetherToAMessage) {
  ChatAnswer answer;
  EXPECT_EQ(Texts(answer, {Delta(R"({"role":"assistant","content":""})"),
                           Delta(R"({"content":"Good "})"), Delta(R"({"content":"day"})"), kStop}),
            (std::vector<std::string>{"Good ", "day"}));
  answer.Add("[DONE]");
  EXPECT_TRUE(answer.End(absl::OkStatus()).ok());
  EXPECT_EQ(answer.Message().dump(), R"({"role":"assistant","content":"Good day"})");
}

TEST(ChatAnswerTest, ReasoningIsToldApart) {
  ChatAnswer answer;
  const std::vector<AnswerPiece> pieces =
      answer.Add(Delta(R"({"reasoning_content":"hm","content":"yes"})"));
  ASSERT_EQ(pieces.size(), 2u);
  EXPECT_EQ(pieces[0].kind, PieceKind::kReasoning);
  EXPECT_EQ(pieces[1].kind, PieceKind::kContent);
  EXPECT_EQ(answer.Add(Delta(R"({"reasoning":" more"})"))[0].kind, PieceKind::kReasoning);
  EXPECT_EQ(answer.Message()["reasoning_content"], "hm more");
  EXPECT_EQ(answer.Message()["content"], "yes");
}

TEST(ChatAnswerTest, CallsOfToolsAreText) {
  ChatAnswer answer;
  const std::vector<std::string> texts = Texts(
      answer,
      {Delta(R"({"tool_calls":[{"index":0,"id":"c1","function":{"name":"time","arguments":""}}]})"),
       Delta(R"({"tool_calls":[{"index":0,"function":{"arguments":"{\"zone\":"}}]})"),
       Delta(R"({"tool_calls":[{"index":0,"function":{"arguments":"1}"}}]})")});
  EXPECT_EQ(texts, (std::vector<std::string>{"[calls time] ", "{\"zone\":", "1}"}));
  const auto call = answer.Message()["tool_calls"][0];
  EXPECT_EQ(call["id"], "c1");
  EXPECT_EQ(call["function"]["name"], "time");
  EXPECT_EQ(call["function"]["arguments"], "{\"zone\":1}");
}

TEST(ChatAnswerTest, TheTimingOfARouterIsTaken) {
  ChatAnswer answer;
  answer.Add(
      R"({"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":4,)"
      R"("prompt_tokens_details":{"cached_tokens":5}},"timing":[{"route":"disaggregated",)"
      R"("prefill_worker":"p","decode_worker":"d","time_to_first_token_ms":7.5,"mean_itl_ms":2}]})");
  ASSERT_TRUE(answer.timing().has_value());
  EXPECT_EQ(answer.timing()->route, "disaggregated");
  EXPECT_EQ(answer.timing()->decode_worker, "d");
  EXPECT_EQ(answer.timing()->ttft_ms, 7.5);
  answer.Add(kStop);
  answer.Add("[DONE]");
  ASSERT_TRUE(answer.End(absl::OkStatus()).ok());
  EXPECT_EQ(answer.end().cached_tokens, 5);
  EXPECT_EQ(answer.end().output_tokens, 4);
}

TEST(ChatAnswerTest, AnAnswerWithoutItsEndIsCutOff) {
  ChatAnswer answer;
  answer.Add(Delta(R"({"content":"a"})"));
  EXPECT_TRUE(absl::IsDataLoss(answer.End(absl::OkStatus())));
}

TEST(ChatAnswerTest, AnErrorWithinTheStreamIsTheEnd) {
  ChatAnswer answer;
  answer.Add(Delta(R"({"content":"a"})"));
  answer.Add(R"({"error":{"message":"the worker is gone: retry"}})");
  answer.Add("[DONE]");
  EXPECT_THAT(std::string(answer.End(absl::OkStatus()).message()), HasSubstr("worker is gone"));
}

TEST(ChatAnswerTest, EventsOfOtherShapesBringNothing) {
  for (const char* event :
       {"", "1", "[]", "{}", R"({"choices":3})", R"({"choices":[4]})",
        R"({"choices":[{"delta":5}]})", R"({"choices":[{"delta":{"content":6}}]})",
        R"({"choices":[{"delta":{"tool_calls":[7]}}],"timing":[8]})"}) {
    ChatAnswer answer;
    answer.Add(event);
    EXPECT_EQ(answer.Message()["content"], "") << event;
  }
}

}  // namespace
}  // namespace tandem::terminal::chat_answer_test
