#include "server/openai/responses/responses_format.h"

#include <string>
#include <utility>
#include <vector>

#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/openai/turn.h"
#include "tests/support/sse_events.h"
#include "tests/support/turn_events.h"

namespace tandem::openai {
namespace {

TurnAnswer Response(TurnDelivery delivery) {
  return TurnAnswer(NewResponsesFormat({.id = "r1", .created = 5, .model = "m", .fingerprint = "f"},
                                       {{"metadata", {{"a", "b"}}}, {"top_p", 1.0}}, false),
                    delivery);
}

// Feeds an answer and returns all that its client gets.
std::string Tell(TurnAnswer& answer, v1::FinishReason reason = v1::FINISH_REASON_STOP) {
  std::string all = answer.streams() ? answer.Begin() : "";
  for (const char* text : {"Hel", "", "lo"}) all += answer.Add(0, TextEvent(text));
  all += answer.Add(0, FinishEvent(reason));
  all += answer.Add(0, UsageEvent(7, 3, 2));
  return all + answer.Finish();
}

TEST(ResponsesFormatTest, AWholeResponseHasAMessage) {
  TurnAnswer answer = Response(TurnDelivery::kWhole);
  const Json json = Json::parse(Tell(answer));
  EXPECT_EQ(json["id"], "resp_r1");
  EXPECT_EQ(json["object"], "response");
  EXPECT_EQ(json["created_at"], 5);
  EXPECT_EQ(json["status"], "completed");
  EXPECT_EQ(json["model"], "m");
  EXPECT_EQ(json["metadata"], Json({{"a", "b"}}));
  EXPECT_EQ(json["store"], false);
  EXPECT_TRUE(json["incomplete_details"].is_null());
  EXPECT_EQ(
      JsonText(json["output"]),
      R"([{"id":"msg_r1_0","status":"completed","type":"message","role":"assistant",)"
      R"("content":[{"type":"output_text","annotations":[],"logprobs":[],"text":"Hello"}]}])");
  EXPECT_EQ(JsonText(json["usage"]),
            R"({"input_tokens":7,"input_tokens_details":{"cached_tokens":2,)"
            R"("cache_write_tokens":0},"output_tokens":3,)"
            R"("output_tokens_details":{"reasoning_tokens":0},"total_tokens":10})");
}

TEST(ResponsesFormatTest, AStreamHasItsEventsInOrder) {
  TurnAnswer answer = Response(TurnDelivery::kStreamed);
  const std::vector<SseEventParts> events = SseEventsIn(Tell(answer));
  std::vector<std::string> names;
  int64_t number = 0;
  for (const SseEventParts& event : events) {
    names.push_back(event.name);
    EXPECT_EQ(event.data["type"], event.name);
    EXPECT_EQ(event.data["sequence_number"], number++);
  }
  EXPECT_THAT(names,
              testing::ElementsAre("response.created", "response.in_progress",
                                   "response.output_item.added", "response.content_part.added",
                                   "response.output_text.delta", "response.output_text.delta",
                                   "response.output_text.done", "response.content_part.done",
                                   "response.output_item.done", "response.completed"));
  EXPECT_EQ(events[0].data["response"]["status"], "in_progress");
  EXPECT_TRUE(events[0].data["response"]["output"].empty());
  EXPECT_TRUE(events[0].data["response"]["usage"].is_null());
  EXPECT_EQ(events[2].data["item"]["status"], "in_progress");
  EXPECT_TRUE(events[2].data["item"]["content"].empty());
  EXPECT_EQ(JsonText(events[5].data),
            R"({"type":"response.output_text.delta","sequence_number":5,"output_index":0,)"
            R"("item_id":"msg_r1_0","content_index":0,"delta":"lo","logprobs":[]})");
  EXPECT_EQ(events[6].data["text"], "Hello");
  EXPECT_EQ(events[7].data["part"]["text"], "Hello");
  EXPECT_EQ(events[8].data["item"]["content"][0]["text"], "Hello");
}

TEST(ResponsesFormatTest, AStreamEndsWithTheWholeResponse) {
  for (const auto reason : {v1::FINISH_REASON_STOP, v1::FINISH_REASON_LENGTH}) {
    TurnAnswer whole = Response(TurnDelivery::kWhole);
    TurnAnswer streamed = Response(TurnDelivery::kStreamed);
    const Json json = Json::parse(Tell(whole, reason));
    EXPECT_EQ(SseEventsIn(Tell(streamed, reason)).back().data["response"], json);
  }
}

TEST(ResponsesFormatTest, WhatMaxTokensCutOffIsIncomplete) {
  TurnAnswer answer = Response(TurnDelivery::kStreamed);
  const auto events = SseEventsIn(Tell(answer, v1::FINISH_REASON_LENGTH));
  EXPECT_EQ(events.back().name, "response.incomplete");
  const Json& response = events.back().data["response"];
  EXPECT_EQ(response["status"], "incomplete");
  EXPECT_EQ(response["incomplete_details"]["reason"], "max_output_tokens");
  EXPECT_EQ(response["output"][0]["status"], "incomplete");
}

TEST(ResponsesFormatTest, AnAnswerWithoutTextHasNoItems) {
  TurnAnswer answer = Response(TurnDelivery::kStreamed);
  EXPECT_EQ(answer.Add(0, FinishEvent(v1::FINISH_REASON_STOP)), "");
  answer.Add(0, UsageEvent(1, 1, 0));
  const auto events = SseEventsIn(answer.Finish());
  ASSERT_EQ(events.size(), 1u);
  EXPECT_TRUE(events[0].data["response"]["output"].empty());
}

TEST(ResponsesFormatTest, AnErrorInAStreamFailsTheResponse) {
  TurnAnswer answer = Response(TurnDelivery::kStreamed);
  std::string all = answer.Begin() + answer.Add(0, TextEvent("Hel"));
  const auto events = SseEventsIn(all + answer.StreamError(Unavailable("no worker")));
  ASSERT_EQ(events.size(), 7u);
  EXPECT_EQ(events[5].name, "error");
  EXPECT_EQ(events[5].data["message"], "no worker");
  EXPECT_EQ(events[5].data["code"], "unavailable");
  EXPECT_EQ(events[6].name, "response.failed");
  EXPECT_EQ(events[6].data["response"]["status"], "failed");
  EXPECT_EQ(events[6].data["response"]["error"]["code"], "server_error");
  EXPECT_EQ(events[6].data["response"]["output"][0]["content"][0]["text"], "Hel");
}

}  // namespace
}  // namespace tandem::openai
