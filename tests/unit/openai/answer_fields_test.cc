// Chats whose answers are searched for calls and reasoning: each is in a field of its own, in whole
// answers and in streams.

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "server/openai/answer.h"
#include "tests/unit/openai/answer_fixture.h"

namespace tandem::openai::answer_fields_test {
namespace {

using answers::AnswerTest;
using answers::Chunk;
using answers::EventsIn;
using answers::Finish;
using answers::Summary;
using testing::HasSubstr;
using testing::Not;

// A chat whose answers are searched for calls and reasoning; the answer's text comes in small
// parts.
class ReadAnswerTest : public AnswerTest {
 protected:
  PieceOptions Reading(bool stream) const {
    const auto markup = ChooseMarkup(nullptr, nullptr, {.tools = "hermes", .reasoning = "think"});
    const AnswerReading reading = NewAnswerReading(*markup, &letters_);
    v1::GenerateRequest request;
    request.set_request_id("r1");
    PieceOptions pieces = {.max_tokens = 1000, .eos_token_ids = {127}};
    pieces.reading = ReadChoices(
        reading, &letters_, {.has_tools = true},
        stream ? ReaderOptions::Calls::kStreamed : ReaderOptions::Calls::kWhole, request);
    return pieces;
  }

  // The answer to a chat that writes this, a character with each token.
  std::string Answered(const AnswerOptions& options, std::string_view text,
                       v1::FinishReason reason = v1::FINISH_REASON_STOP) {
    Answer answer = Chat(options);
    answer.AddPrompt({}, Reading(options.stream), 1);
    std::string sent;
    for (const char c : text) sent += answer.Add(0, Chunk(0, std::string(1, c), {c}));
    sent += answer.Add(0, Finish(0, reason));
    answer.Add(0, Summary(1, static_cast<int32_t>(text.size())));
    return sent + answer.Finish();
  }

  static constexpr std::string_view kText =
      "<think>\nLook.\n</think>\n\nI look.\n<tool_call>\n{\"name\": \"look\", \"arguments\": "
      "{\"at\": 1}}\n</tool_call>\n<tool_call>{\"name\": \"go\", \"arguments\": {}}</tool_call>";
};

TEST_F(ReadAnswerTest, AWholeAnswerHasReasoningAndCallsInFieldsOfTheirOwn) {
  const Json json = ParseOrderedJson(Answered({}, kText)).value;
  const Json& choice = json["choices"][0];
  EXPECT_EQ(choice["finish_reason"], "tool_calls");
  const Json& message = choice["message"];
  EXPECT_EQ(message["content"], "I look.");
  EXPECT_EQ(message["reasoning_content"], "Look.");
  EXPECT_EQ(message["reasoning"], "Look.");
  ASSERT_EQ(message["tool_calls"].size(), 2u);
  Json call = message["tool_calls"][0];
  EXPECT_THAT(call["id"].get<std::string>(), testing::StartsWith("call_"));
  EXPECT_NE(call["id"], message["tool_calls"][1]["id"]);
  call.erase("id");
  EXPECT_EQ(JsonText(call),
            R"({"type":"function","function":{"name":"look","arguments":"{\"at\": 1}"}})");
  EXPECT_EQ(json["usage"]["completion_tokens_details"]["reasoning_tokens"], 15)
      << "those after the mark, up to the one that ends it";
}

TEST_F(ReadAnswerTest, AStreamHasTheSameInDeltas) {
  const std::vector<std::string> events = EventsIn(Answered({.stream = true}, kText));
  Json message;
  std::vector<std::string> texts(3);
  Json calls = Json::array();
  std::string finish;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const Json choice = ParseOrderedJson(events[i]).value["choices"][0];
    const Json& delta = choice["delta"];
    if (!choice["finish_reason"].is_null()) finish = choice["finish_reason"];
    texts[0] += delta.value("content", "");
    texts[1] += delta.value("reasoning_content", "");
    EXPECT_EQ(delta.contains("reasoning"), delta.contains("reasoning_content"));
    if (!delta.contains("tool_calls")) continue;
    for (const Json& part : delta["tool_calls"]) {
      const auto index = part["index"].get<size_t>();
      EXPECT_EQ(part.contains("id"), index == calls.size()) << "the head comes once, and first";
      if (index == calls.size()) {
        calls.push_back(part);
        continue;
      }
      EXPECT_FALSE(part["function"].contains("name"));
      auto& arguments = calls[index]["function"]["arguments"].get_ref<std::string&>();
      arguments += part["function"]["arguments"].get<std::string>();
    }
  }
  EXPECT_EQ(texts[0], "I look.");
  EXPECT_EQ(texts[1], "Look.");
  EXPECT_EQ(finish, "tool_calls");
  const Json whole =
      ParseOrderedJson(Answered({}, kText)).value["choices"][0]["message"]["tool_calls"];
  for (Json& call : calls) call.erase("index");
  EXPECT_EQ(calls, whole);
}

TEST_F(ReadAnswerTest, ACallWithoutContentHasNone) {
  const Json json = ParseOrderedJson(Answered({}, R"(<tool_call>{"name":"go"}</tool_call>)")).value;
  EXPECT_TRUE(json["choices"][0]["message"]["content"].is_null());
  EXPECT_FALSE(json["choices"][0]["message"].contains("reasoning"));
}

TEST_F(ReadAnswerTest, ClientsMayDoWithoutReasoningAndWithOneCall) {
  for (const bool stream : {false, true}) {
    const std::string text = Answered(
        {.stream = stream, .include_reasoning = false, .parallel_tool_calls = false}, kText);
    EXPECT_THAT(text, Not(HasSubstr("reasoning\"")));
    EXPECT_THAT(text, HasSubstr("\"look\""));
    EXPECT_THAT(text, Not(HasSubstr("\"go\"")));
  }
}

TEST_F(ReadAnswerTest, WhatIsCutOffIsNoCall) {
  const std::string_view cut = kText.substr(0, kText.size() - 20);
  const Json json =
      ParseOrderedJson(Answered({}, cut, v1::FINISH_REASON_LENGTH)).value["choices"][0];
  EXPECT_EQ(json["finish_reason"], "length");
  EXPECT_EQ(json["message"]["tool_calls"].size(), 1u);
  EXPECT_THAT(json["message"]["content"].get<std::string>(),
              HasSubstr("<tool_call>{\"name\": \"go"));
}

}  // namespace
}  // namespace tandem::openai::answer_fields_test
