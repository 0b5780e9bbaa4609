#include "server/openai/responses/responses_format.h"

#include <string>
#include <utility>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/openai/turn.h"
#include "tests/support/sse_events.h"
#include "tests/support/turn_events.h"

namespace tandem::openai::responses_format_test {
namespace {

TurnAnswer Response(TurnDelivery delivery, const TurnReading& reading = {}) {
  return TurnAnswer(NewResponsesFormat({.id = "r1", .created = 5, .model = "m", .fingerprint = "f"},
                                       {{"metadata", {{"a", "b"}}}, {"top_p", 1.0}}, false),
                    delivery, reading);
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
  const Json json = ParseOrderedJson(Tell(answer)).value;
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
    const Json json = ParseOrderedJson(Tell(whole, reason)).value;
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

// The same of an answer with reasoning and a call.
std::string TellParts(TurnAnswer& answer) {
  std::string all = answer.streams() ? answer.Begin() : "";
  for (const v1::GenerateResponse& event : ThoughtWordAndCall()) all += answer.Add(0, event);
  all += answer.Add(0, FinishEvent(v1::FINISH_REASON_STOP));
  all += answer.Add(0, UsageEvent(7, 30, 0));
  return all + answer.Finish();
}

TEST(ResponsesFormatTest, ReasoningAndCallsAreItems) {
  TurnAnswer answer = Response(TurnDelivery::kWhole, ReadThoughtsAndCalls(TurnDelivery::kWhole));
  const Json json = ParseOrderedJson(TellParts(answer)).value;
  const Json& output = json["output"];
  ASSERT_EQ(output.size(), 3u) << json;
  EXPECT_EQ(JsonText(output[0]),
            R"({"id":"rs_r1_0","status":"completed","type":"reasoning","summary":[],)"
            R"("content":[{"type":"reasoning_text","text":"hm, so"}]})");
  EXPECT_EQ(output[1]["content"][0]["text"], "Look:");
  EXPECT_EQ(output[2]["type"], "function_call");
  EXPECT_EQ(output[2]["id"], "fc_r1_2");
  EXPECT_EQ(output[2]["name"], "f");
  EXPECT_FALSE(output[2]["call_id"].get<std::string>().empty());
  EXPECT_EQ(ParseOrderedJson(output[2]["arguments"].get<std::string>()).value, Json({{"x", 1}}));
  EXPECT_GT(json["usage"]["output_tokens_details"]["reasoning_tokens"], 0);
}

TEST(ResponsesFormatTest, StreamedItemsAreThoseOfTheWholeResponse) {
  TurnAnswer whole = Response(TurnDelivery::kWhole, ReadThoughtsAndCalls(TurnDelivery::kWhole));
  TurnAnswer streamed =
      Response(TurnDelivery::kStreamed, ReadThoughtsAndCalls(TurnDelivery::kStreamed));
  const std::vector<SseEventParts> events = SseEventsIn(TellParts(streamed));
  EXPECT_EQ(events.back().data["response"], ParseOrderedJson(TellParts(whole)).value);
  std::vector<std::string> names;
  std::string reasoning, text, arguments;
  for (const SseEventParts& event : events) {
    if (event.name == "response.reasoning_text.delta") reasoning += event.data["delta"];
    if (event.name == "response.output_text.delta") text += event.data["delta"];
    if (event.name == "response.function_call_arguments.delta") arguments += event.data["delta"];
    if (event.name.ends_with(".delta") && names.back() == event.name) continue;
    names.push_back(event.name);
  }
  EXPECT_EQ(reasoning, "hm, so");
  EXPECT_EQ(text, "Look:");
  EXPECT_EQ(ParseOrderedJson(arguments).value, Json({{"x", 1}}));
  EXPECT_THAT(
      names,
      testing::ElementsAre(
          "response.created", "response.in_progress", "response.output_item.added",
          "response.content_part.added", "response.reasoning_text.delta",
          "response.reasoning_text.done", "response.content_part.done", "response.output_item.done",
          "response.output_item.added", "response.content_part.added", "response.output_text.delta",
          "response.output_text.done", "response.content_part.done", "response.output_item.done",
          "response.output_item.added", "response.function_call_arguments.delta",
          "response.function_call_arguments.done", "response.output_item.done",
          "response.completed"));
}

TEST(ResponsesFormatTest, ClientsMayLeaveOutReasoningAndFurtherCalls) {
  TurnReading reading = ReadThoughtsAndCalls(TurnDelivery::kWhole);
  reading.include_reasoning = false;
  reading.parallel_tool_calls = false;
  TurnAnswer answer = Response(TurnDelivery::kWhole, reading);
  for (int i = 0; i < 2; ++i) {
    for (const v1::GenerateResponse& event : ThoughtWordAndCall()) answer.Add(0, event);
  }
  answer.Add(0, FinishEvent(v1::FINISH_REASON_STOP));
  const Json json = ParseOrderedJson(answer.Finish()).value;
  int calls = 0;
  for (const Json& item : json["output"]) {
    EXPECT_NE(item["type"], "reasoning");
    if (item["type"] == "function_call") ++calls;
  }
  EXPECT_EQ(calls, 1);
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
}  // namespace tandem::openai::responses_format_test
