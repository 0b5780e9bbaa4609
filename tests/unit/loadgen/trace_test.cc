#include "bench/serving/trace.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::loadgen::trace_test {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

constexpr int64_t kAll = 1 << 20;

std::string ErrorOf(TraceFormat format, const std::string& text) {
  const auto trace = ParseTrace(format, text, kAll);
  EXPECT_FALSE(trace.ok()) << text;
  EXPECT_TRUE(absl::IsInvalidArgument(trace.status()));
  return std::string(trace.status().message());
}

TEST(TraceTest, MooncakeRowsHaveMillisecondsAndBlocksOf512Tokens) {
  const auto trace = ParseTrace(
      TraceFormat::kMooncake,
      "{\"timestamp\": 1500, \"input_length\": 1030, \"output_length\": 5, \"hash_ids\": [7, 8, "
      "9]}\r\n\n{\"timestamp\": 4000, \"input_length\": 12, \"output_length\": 1, \"hash_ids\": "
      "[7]}",
      kAll);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->block_tokens, 512);
  ASSERT_EQ(trace->requests.size(), 2u);
  EXPECT_EQ(trace->requests[0].seconds, 0);
  EXPECT_EQ(trace->requests[0].input_tokens, 1030);
  EXPECT_EQ(trace->requests[0].output_tokens, 5);
  EXPECT_THAT(trace->requests[0].hash_ids, ElementsAre(7, 8, 9));
  EXPECT_DOUBLE_EQ(trace->requests[1].seconds, 2.5);
}

TEST(TraceTest, BailianRowsHaveSecondsAndBlocksOf16Tokens) {
  const auto trace = ParseTrace(TraceFormat::kBailian,
                                "{\"chat_id\":1,\"timestamp\":0.25,\"input_length\":20,"
                                "\"output_length\":3,\"hash_ids\":[1,2]}\n"
                                "{\"chat_id\":2,\"timestamp\":61.5,\"input_length\":20,"
                                "\"output_length\":3,\"hash_ids\":[1,3]}\n",
                                kAll);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->block_tokens, 16);
  EXPECT_DOUBLE_EQ(trace->requests[1].seconds, 61.25);
}

// A response of 0 tokens is a request that failed when the trace was taken.
TEST(TraceTest, BurstGptColumnsAreFoundByTheirNamesAndFailedRequestsSkipped) {
  const auto trace =
      ParseTrace(TraceFormat::kBurstGpt,
                 "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
                 "5,ChatGPT,472,18,490,Conversation log\n"
                 "45,ChatGPT,1087,0,1087,Conversation log\n"
                 "118,GPT-4,417,276,693,Conversation log\n",
                 kAll);
  ASSERT_TRUE(trace.ok()) << trace.status();
  ASSERT_EQ(trace->requests.size(), 2u);
  EXPECT_EQ(trace->skipped, 1);
  EXPECT_DOUBLE_EQ(trace->requests[1].seconds, 113);
  EXPECT_EQ(trace->requests[1].input_tokens, 417);
  EXPECT_EQ(trace->requests[1].output_tokens, 276);
}

TEST(TraceTest, AzureTimesMayHaveFractionsAndAZone) {
  const auto trace = ParseTrace(TraceFormat::kAzure,
                                "TIMESTAMP,ContextTokens,GeneratedTokens\n"
                                "2023-11-16 18:15:46.6805900,374,44\n"
                                "2023-11-16 18:15:50.9951690,396,109\n"
                                "2023-11-17 00:00:00+00:00,396,109\n"
                                "2024-02-29T00:00:00Z,396,109\n",
                                kAll);
  ASSERT_TRUE(trace.ok()) << trace.status();
  ASSERT_EQ(trace->requests.size(), 4u);
  EXPECT_NEAR(trace->requests[1].seconds, 4.314579, 1e-5);
  EXPECT_NEAR(trace->requests[2].seconds, 20653.31941, 1e-5);
  EXPECT_NEAR(trace->requests[3].seconds - trace->requests[2].seconds, 104 * 86400, 1e-5);
}

TEST(TraceTest, OnlySoManyRequestsAreRead) {
  const auto trace =
      ParseTrace(TraceFormat::kBurstGpt,
                 "Timestamp,Request tokens,Response tokens\n1,1,1\n2,2,2\nbroken\n", 2);
  ASSERT_TRUE(trace.ok()) << trace.status();
  EXPECT_EQ(trace->requests.size(), 2u);
}

TEST(TraceTest, TimeThatGoesBackwardsIsRefusedWithItsLine) {
  EXPECT_THAT(ErrorOf(TraceFormat::kBurstGpt,
                      "Timestamp,Request tokens,Response tokens\n10,1,1\n12,1,1\n11.5,1,1\n"),
              HasSubstr("line 4: its time is 0.5 s before"));
  EXPECT_THAT(ErrorOf(TraceFormat::kMooncake,
                      "{\"timestamp\":10,\"input_length\":1,\"output_length\":1}\n"
                      "{\"timestamp\":9,\"input_length\":0,\"output_length\":1}\n"),
              HasSubstr("line 2"));
}

TEST(TraceTest, WrongRowsAreRefusedWithWhatIsWrong) {
  const std::string row = "{\"timestamp\":1,\"input_length\":1,\"output_length\":1}\n";
  EXPECT_THAT(ErrorOf(TraceFormat::kMooncake, row + "{\"timestamp\":2,\"input_length\":1}"),
              HasSubstr("line 2: it has no number \"output_length\""));
  EXPECT_THAT(ErrorOf(TraceFormat::kMooncake, "[1]"), HasSubstr("no JSON object"));
  EXPECT_THAT(ErrorOf(TraceFormat::kMooncake, "{\"timestamp\":"), HasSubstr("no JSON object"));
  EXPECT_THAT(
      ErrorOf(TraceFormat::kMooncake, "{\"timestamp\":1,\"input_length\":-1,\"output_length\":1}"),
      HasSubstr("\"input_length\" is -1"));
  EXPECT_THAT(
      ErrorOf(TraceFormat::kMooncake,
              "{\"timestamp\":1,\"input_length\":1,\"output_length\":1,\"hash_ids\":[\"a\"]}"),
      HasSubstr("hash_ids"));
  EXPECT_THAT(ErrorOf(TraceFormat::kBurstGpt, "Time,Request tokens,Response tokens\n1,1,1\n"),
              HasSubstr("no column \"Timestamp\""));
  EXPECT_THAT(ErrorOf(TraceFormat::kBurstGpt, "Timestamp,Request tokens,Response tokens\n1,2\n"),
              HasSubstr("only 2 columns"));
  EXPECT_THAT(ErrorOf(TraceFormat::kBurstGpt, "Timestamp,Request tokens,Response tokens\nnan,1,1"),
              HasSubstr("no time in seconds"));
  EXPECT_THAT(ErrorOf(TraceFormat::kBurstGpt, "Timestamp,Request tokens,Response tokens\n1,1.5,1"),
              HasSubstr("\"1.5\" is no number of tokens"));
}

TEST(TraceTest, WhatIsNoDateIsRefused) {
  for (const std::string time :
       {"2023-02-30 00:00:00", "2023-11-16", "2023-11-16 25:00:00", "2023-11-16 18:15:46.",
        "2023-11-16 18:15:46.5x", "2023-11-16 18:15:46+01:00", "1700000000"}) {
    EXPECT_THAT(
        ErrorOf(TraceFormat::kAzure, "TIMESTAMP,ContextTokens,GeneratedTokens\n" + time + ",1,1\n"),
        HasSubstr("no time in UTC"))
        << time;
  }
}

TEST(TraceTest, AFileWithoutARequestIsRefused) {
  EXPECT_THAT(ErrorOf(TraceFormat::kMooncake, ""), HasSubstr("no request"));
  EXPECT_THAT(ErrorOf(TraceFormat::kAzure, "TIMESTAMP,ContextTokens,GeneratedTokens\n"),
              HasSubstr("no request"));
  const auto missing = ReadTrace(TraceFormat::kAzure, "/nowhere.csv", kAll);
  EXPECT_TRUE(absl::IsNotFound(missing.status()));
  EXPECT_THAT(std::string(missing.status().message()), HasSubstr("/nowhere.csv"));
}

}  // namespace
}  // namespace tandem::loadgen::trace_test
