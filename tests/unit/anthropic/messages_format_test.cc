#include "server/anthropic/messages_format.h"

#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/sse_events.h"
#include "tests/support/turn_events.h"

namespace tandem::anthropic::messages_format_test {
namespace {

using openai::Json;
using openai::TurnAnswer;
using openai::TurnDelivery;

TurnAnswer Message(TurnDelivery delivery, const openai::TurnReading& reading = {}) {
  return TurnAnswer(
      NewMessagesFormat({.id = "r1", .created = 5, .model = "m", .fingerprint = "f"}, 7, false),
      delivery, reading);
}

// Feeds an answer and returns all that its client gets.
std::string Tell(TurnAnswer& answer, v1::FinishReason reason, const std::string& stop = "") {
  std::string all = answer.streams() ? answer.Begin() : "";
  for (const char* text : {"Hel", "", "lo"}) all += answer.Add(0, TextEvent(text));
  all += answer.Add(0, FinishEvent(reason, stop));
  all += answer.Add(0, UsageEvent(7, 3, 2));
  return all + answer.Finish();
}

TEST(MessagesFormatTest, AWholeMessageHasBlocks) {
  TurnAnswer answer = Message(TurnDelivery::kWhole);
  EXPECT_EQ(Tell(answer, v1::FINISH_REASON_STOP),
            R"({"id":"msg_r1","type":"message","role":"assistant","model":"m",)"
            R"("content":[{"type":"text","text":"Hello"}],"stop_reason":"end_turn",)"
            R"("stop_sequence":null,"usage":{"input_tokens":5,"cache_creation_input_tokens":0,)"
            R"("cache_read_input_tokens":2,"output_tokens":3}})");
}

TEST(MessagesFormatTest, AStreamHasItsEventsInOrder) {
  TurnAnswer answer = Message(TurnDelivery::kStreamed);
  const std::vector<SseEventParts> events = SseEventsIn(Tell(answer, v1::FINISH_REASON_STOP));
  std::vector<std::string> data;
  for (const SseEventParts& event : events) {
    EXPECT_EQ(event.data["type"], event.name);
    data.push_back(event.data.dump());
  }
  EXPECT_THAT(
      data,
      testing::ElementsAre(
          R"({"type":"message_start","message":{"id":"msg_r1","type":"message",)"
          R"("role":"assistant","model":"m","content":[],"stop_reason":null,)"
          R"("stop_sequence":null,"usage":{"input_tokens":7,"cache_creation_input_tokens":0,)"
          R"("cache_read_input_tokens":0,"output_tokens":0}}})",
          R"({"type":"content_block_start","index":0,"content_block":{"type":"text","text":""}})",
          R"({"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"Hel"}})",
          R"({"type":"content_block_delta","index":0,"delta":{"type":"text_delta","text":"lo"}})",
          R"({"type":"content_block_stop","index":0})",
          R"({"type":"message_delta","delta":{"stop_reason":"end_turn","stop_sequence":null},)"
          R"("usage":{"input_tokens":5,"cache_creation_input_tokens":0,)"
          R"("cache_read_input_tokens":2,"output_tokens":3}})",
          R"({"type":"message_stop"})"));
}

TEST(MessagesFormatTest, WhatEndedTheMessageIsSaid) {
  const auto stop_of = [](v1::FinishReason reason, const std::string& stop) {
    TurnAnswer answer = Message(TurnDelivery::kWhole);
    const Json json = ParseOrderedJson(Tell(answer, reason, stop)).value;
    return json["stop_reason"].dump() + json["stop_sequence"].dump();
  };
  EXPECT_EQ(stop_of(v1::FINISH_REASON_STOP, ""), R"("end_turn"null)");
  EXPECT_EQ(stop_of(v1::FINISH_REASON_STOP, "END"), R"("stop_sequence""END")");
  EXPECT_EQ(stop_of(v1::FINISH_REASON_LENGTH, ""), R"("max_tokens"null)");
}

// The same of an answer with thinking and a use of a tool.
std::string TellParts(TurnAnswer& answer) {
  std::string all = answer.streams() ? answer.Begin() : "";
  for (const v1::GenerateResponse& event : ThoughtWordAndCall()) all += answer.Add(0, event);
  all += answer.Add(0, FinishEvent(v1::FINISH_REASON_STOP));
  all += answer.Add(0, UsageEvent(7, 30, 0));
  return all + answer.Finish();
}

TEST(MessagesFormatTest, ThinkingAndUsesOfToolsAreBlocks) {
  TurnAnswer answer = Message(TurnDelivery::kWhole, ReadThoughtsAndCalls(TurnDelivery::kWhole));
  const Json json = ParseOrderedJson(TellParts(answer)).value;
  ASSERT_EQ(json["content"].size(), 3u) << json;
  EXPECT_EQ(JsonText(json["content"][0]),
            R"({"type":"thinking","thinking":"hm, so","signature":""})");
  EXPECT_EQ(JsonText(json["content"][1]), R"({"type":"text","text":"Look:"})");
  EXPECT_EQ(json["content"][2]["type"], "tool_use");
  EXPECT_EQ(json["content"][2]["name"], "f");
  EXPECT_EQ(JsonText(json["content"][2]["input"]), R"({"x":1})");
  EXPECT_EQ(json["stop_reason"], "tool_use");
}

TEST(MessagesFormatTest, StreamedBlocksAreThoseOfTheWholeMessage) {
  TurnAnswer whole = Message(TurnDelivery::kWhole, ReadThoughtsAndCalls(TurnDelivery::kWhole));
  TurnAnswer streamed =
      Message(TurnDelivery::kStreamed, ReadThoughtsAndCalls(TurnDelivery::kStreamed));
  const Json wanted = ParseOrderedJson(TellParts(whole)).value;
  Json content = Json::array();
  std::string arguments;
  Json stop;
  for (const SseEventParts& event : SseEventsIn(TellParts(streamed))) {
    const Json& data = event.data;
    if (event.name == "content_block_start") {
      EXPECT_EQ(data["index"], content.size());
      content.push_back(data["content_block"]);
    } else if (event.name == "content_block_delta") {
      const Json& delta = data["delta"];
      Json& block = content[data["index"].get<size_t>()];
      if (delta["type"] == "text_delta") {
        block["text"] = block["text"].get<std::string>() + delta["text"].get<std::string>();
      } else if (delta["type"] == "thinking_delta") {
        block["thinking"] =
            block["thinking"].get<std::string>() + delta["thinking"].get<std::string>();
      } else {
        EXPECT_EQ(delta["type"], "input_json_delta");
        arguments += delta["partial_json"];
      }
    } else if (event.name == "message_delta") {
      stop = data["delta"]["stop_reason"];
    }
  }
  content.back()["input"] = ParseOrderedJson(arguments).value;
  EXPECT_EQ(content, wanted["content"]);
  EXPECT_EQ(stop, "tool_use");
}

TEST(MessagesFormatTest, AnErrorInAStreamIsAnEvent) {
  TurnAnswer answer = Message(TurnDelivery::kStreamed);
  const auto events = SseEventsIn(answer.StreamError(Unavailable("no worker")));
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].name, "error");
  EXPECT_EQ(events[0].data.dump(),
            R"({"type":"error","error":{"type":"overloaded_error","message":"no worker"},)"
            R"("request_id":"r1"})");
}

TEST(MessagesFormatTest, AnIdleStreamIsPinged) {
  const auto events = SseEventsIn(kMessagesStyle.keep_alive);
  ASSERT_EQ(events.size(), 1u);
  EXPECT_EQ(events[0].name, "ping");
  EXPECT_EQ(events[0].data["type"], "ping");
}

}  // namespace
}  // namespace tandem::anthropic::messages_format_test
