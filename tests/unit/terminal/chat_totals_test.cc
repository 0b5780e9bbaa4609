#include "server/terminal/chat_totals.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::terminal::chat_totals_test {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

AnswerFigures Handed() {
  return {.route = "disaggregated",
          .prefill_worker = "prefill-0",
          .decode_worker = "decode-0",
          .ttft_ms = 38.4,
          .itl_ms = 20,
          .prompt_tokens = 45,
          .cached_tokens = 32,
          .output_tokens = 24};
}

TEST(ChatTotalsTest, OneLineSaysWhereAnAnswerCameFromAndHowFast) {
  EXPECT_EQ(FiguresLine(Handed(), 8192),
            "[disaggregated on prefill-0 -> decode-0, first token after 38 ms, 50.0 tokens/s, 24 "
            "tokens, 32 of 45 prompt tokens cached, context 69 of 8192]");
}

TEST(ChatTotalsTest, WhatAServerDoesNotSayIsLeftOut) {
  EXPECT_EQ(FiguresLine({.ttft_ms = 5}, 0), "[first token after 5 ms]");
  AnswerFigures unified = Handed();
  unified.decode_worker = unified.prefill_worker;
  EXPECT_THAT(FiguresLine(unified, 0), HasSubstr("on prefill-0, "));
  EXPECT_THAT(FiguresLine(unified, 0), Not(HasSubstr("context")));
}

TEST(ChatTotalsTest, TimesSeenHereStandInForThoseOfAServerWithout) {
  ChatAnswer answer;
  answer.Add(R"({"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}],)"
             R"("usage":{"completion_tokens":5}})");
  answer.Add("[DONE]");
  ASSERT_TRUE(answer.End(absl::OkStatus()).ok());
  const AnswerFigures figures = FiguresOf(answer, {.first_ms = 10, .last_ms = 50});
  EXPECT_EQ(figures.ttft_ms, 10);
  EXPECT_EQ(figures.itl_ms, 10);
  EXPECT_EQ(figures.route, "");
  EXPECT_EQ(figures.cached_tokens, -1);
}

TEST(ChatTotalsTest, TotalsAddUp) {
  ChatTotals totals;
  EXPECT_EQ(totals.Text(), "0 answers, 0 stopped, 0 failed");
  totals.Add(Handed());
  totals.Add(Handed());
  totals.AddStopped();
  totals.AddFailed();
  EXPECT_THAT(totals.Text(), HasSubstr("2 answers, 1 stopped, 1 failed"));
  EXPECT_THAT(totals.Text(), HasSubstr("90 prompt tokens, 64 of them cached; 48 output tokens"));
  EXPECT_THAT(totals.Text(), HasSubstr("first token after 38 ms on average, 50.0 tokens/s"));
  EXPECT_THAT(totals.Text(), HasSubstr("2 disaggregated"));
}

}  // namespace
}  // namespace tandem::terminal::chat_totals_test
