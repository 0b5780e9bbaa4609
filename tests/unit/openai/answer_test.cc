#include "server/openai/answer.h"

#include <cstddef>
#include <cstdint>
#include <limits>
#include <string>
#include <tuple>

#include "base/json.h"
#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/unit/openai/answer_fixture.h"

namespace tandem::openai::answer_test {
namespace {

using answers::AnswerTest;
using answers::Chunk;
using answers::EventsIn;
using answers::Finish;
using answers::Letter;
using answers::Summary;
using testing::HasSubstr;

TEST_F(AnswerTest, AWholeCompletionHasAllChoicesInOrder) {
  Answer answer = Completion({});
  answer.AddPrompt({}, Pieces(), 2);
  answer.AddPrompt({}, Pieces(), 2);
  EXPECT_EQ(answer.Add(1, Chunk(1, "d", {'d'})), "");
  answer.Add(0, Chunk(0, "a", {'a'}));
  answer.Add(0, Chunk(1, "b", {'b'}));
  answer.Add(1, Chunk(0, "c", {'c'}));
  answer.Add(0, Chunk(0, "A", {'A'}));
  for (size_t prompt : {0, 1}) {
    for (int32_t i : {1, 0}) answer.Add(prompt, Finish(i, v1::FINISH_REASON_LENGTH));
    answer.Add(prompt, Summary(4, 3));
  }
  const Json json = ParseOrderedJson(answer.Finish()).value;
  EXPECT_EQ(json["id"], "cmpl-r1");
  EXPECT_EQ(json["object"], "text_completion");
  EXPECT_EQ(json["created"], 5);
  EXPECT_EQ(json["model"], "m");
  ASSERT_EQ(json["choices"].size(), 4u);
  EXPECT_EQ(json["choices"][0]["text"], "aA");
  EXPECT_EQ(json["choices"][1]["text"], "b");
  EXPECT_EQ(json["choices"][2]["text"], "c");
  EXPECT_EQ(json["choices"][3]["text"], "d");
  EXPECT_EQ(json["choices"][3]["index"], 3);
  EXPECT_EQ(json["choices"][3]["finish_reason"], "length");
  EXPECT_EQ(json["usage"]["prompt_tokens"], 8);
  EXPECT_EQ(json["usage"]["completion_tokens"], 6);
  EXPECT_EQ(json["usage"]["total_tokens"], 14);
  EXPECT_EQ(json["usage"]["prompt_tokens_details"]["cached_tokens"], 4);
}

TEST_F(AnswerTest, TheLastTokenComesWithTheEndOfItsChoice) {
  Answer answer = Completion({.stream = true});
  answer.AddPrompt({}, Pieces(), 1);
  EXPECT_EQ(EventsIn(answer.Add(0, Chunk(0, "a", {'a'}))).size(), 1u);
  EXPECT_EQ(EventsIn(answer.Add(0, Chunk(0, "b", {'b'}))).size(), 1u);
  EXPECT_EQ(answer.Add(0, Chunk(0, "c", {'c'})), "") << "the third of three tokens";
  const auto events = EventsIn(answer.Add(0, Finish(0, v1::FINISH_REASON_LENGTH)));
  ASSERT_EQ(events.size(), 1u);
  const Json last = ParseOrderedJson(events[0]).value;
  EXPECT_EQ(last["choices"][0]["text"], "c");
  EXPECT_EQ(last["choices"][0]["finish_reason"], "length");
  EXPECT_EQ(answer.Add(0, Summary(1, 3)), "");
  EXPECT_EQ(answer.Finish(), "data: [DONE]\n\n");
}

TEST_F(AnswerTest, UsageComesInAnEventOfItsOwnOrInEach) {
  Answer answer = Completion({.stream = true, .include_usage = true, .continuous_usage = true});
  answer.AddPrompt({.text = {}, .token_ids = {1, 2, 3, 4}, .logprobs = {}}, Pieces(), 1);
  const Json first = ParseOrderedJson(EventsIn(answer.Add(0, Chunk(0, "ab", {'a', 'b'})))[0]).value;
  EXPECT_EQ(first["usage"]["prompt_tokens"], 4);
  EXPECT_EQ(first["usage"]["completion_tokens"], 2);
  answer.Add(0, Finish(0, v1::FINISH_REASON_STOP));
  answer.Add(0, Summary(4, 2));
  const auto events = EventsIn(answer.Finish());
  ASSERT_EQ(events.size(), 2u);
  const Json usage = ParseOrderedJson(events[0]).value;
  EXPECT_TRUE(usage["choices"].empty());
  EXPECT_EQ(usage["usage"]["total_tokens"], 6);
  EXPECT_EQ(events[1], "[DONE]");
}

TEST_F(AnswerTest, WhatStoppedAChoiceIsNamed) {
  for (const auto& [last, stop, wanted] :
       {std::tuple('x', "END", Json("END")), std::tuple(static_cast<char>(7), "", Json(7)),
        std::tuple(static_cast<char>(127), "", Json(nullptr))}) {
    Answer answer = Completion({});
    answer.AddPrompt({}, Pieces(), 1);
    answer.Add(0, Chunk(0, "", {last}));
    answer.Add(0, Finish(0, v1::FINISH_REASON_STOP, stop));
    answer.Add(0, Summary(1, 1));
    const Json json = ParseOrderedJson(answer.Finish()).value;
    EXPECT_EQ(json["choices"][0]["finish_reason"], "stop");
    EXPECT_EQ(json["choices"][0]["stop_reason"], wanted);
  }
}

TEST_F(AnswerTest, LogprobsOfACompletionAreFourLists) {
  Answer answer = Completion({.logprobs = true});
  answer.AddPrompt({}, Pieces(), 1);
  answer.Add(0, Letter('a', -0.25));
  answer.Add(0, Letter('b', -std::numeric_limits<float>::infinity()));
  answer.Add(0, Finish(0, v1::FINISH_REASON_STOP));
  answer.Add(0, Summary(1, 2));
  const Json json = ParseOrderedJson(answer.Finish()).value;
  EXPECT_EQ(JsonText(json["choices"][0]["logprobs"]),
            R"({"text_offset":[0,1],"token_logprobs":[-0.25,-9999.0],"tokens":["a","b"],)"
            R"("top_logprobs":[{"z":-0.5,"a":-0.25},{"z":-0.5,"b":-9999.0}]})");
}

TEST_F(AnswerTest, AnEchoPutsThePromptBeforeTheTextAndItsLogprobs) {
  for (const bool stream : {false, true}) {
    Answer answer = Completion({.stream = stream, .echo = true, .logprobs = true});
    PieceOptions pieces = Pieces();
    pieces.first_offset = 2;
    answer.AddPrompt({.text = "pq", .token_ids = {'p', 'q'}, .logprobs = {}}, pieces, 1);
    v1::GenerateResponse prompt;
    v1::TokenLogprobs& entry = *prompt.mutable_prompt_logprobs()->add_tokens();
    entry.mutable_sampled()->set_token_id('q');
    entry.mutable_sampled()->set_logprob(-1);
    EXPECT_EQ(answer.Add(0, prompt), "");
    const std::string first = answer.Add(0, Letter('a', -0.25));
    answer.Add(0, Finish(0, v1::FINISH_REASON_STOP));
    answer.Add(0, Summary(2, 1));
    const Json json = ParseOrderedJson(stream ? EventsIn(first)[0] : answer.Finish()).value;
    EXPECT_EQ(json["choices"][0]["text"], "pqa");
    EXPECT_EQ(JsonText(json["choices"][0]["logprobs"]),
              R"({"text_offset":[0,1,2],"token_logprobs":[null,-1.0,-0.25],"tokens":["p","q","a"],)"
              R"("top_logprobs":[null,{"q":-1.0},{"z":-0.5,"a":-0.25}]})");
  }
}

TEST_F(AnswerTest, AChatBeginsWithItsRoleWhenTheFirstTokenComes) {
  Answer answer = Chat({.stream = true});
  answer.AddPrompt({}, Pieces(), 1);
  const auto events = EventsIn(answer.Add(0, Chunk(0, "a", {'a'})));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_EQ(events[0],
            R"({"id":"chatcmpl-r1","object":"chat.completion.chunk","created":5,"model":"m",)"
            R"("system_fingerprint":"f","choices":[{"index":0,"delta":{"role":"assistant",)"
            R"("content":""},"logprobs":null,"finish_reason":null}]})");
  EXPECT_EQ(ParseOrderedJson(events[1]).value["choices"][0]["delta"], Json({{"content", "a"}}));
  const auto last = EventsIn(answer.Add(0, Finish(0, v1::FINISH_REASON_STOP)));
  ASSERT_EQ(last.size(), 1u);
  EXPECT_EQ(ParseOrderedJson(last[0]).value["choices"][0]["delta"], Json::object());
  EXPECT_EQ(ParseOrderedJson(last[0]).value["choices"][0]["finish_reason"], "stop");
}

TEST_F(AnswerTest, AWholeChatHasAMessage) {
  Answer answer = Chat({.logprobs = true});
  answer.AddPrompt({}, Pieces(), 1);
  answer.Add(0, Letter('a', -0.25));
  answer.Add(0, Finish(0, v1::FINISH_REASON_STOP));
  answer.Add(0, Summary(1, 1));
  const Json json = ParseOrderedJson(answer.Finish()).value;
  EXPECT_EQ(json["object"], "chat.completion");
  EXPECT_EQ(json["choices"][0]["message"]["role"], "assistant");
  EXPECT_EQ(json["choices"][0]["message"]["content"], "a");
  EXPECT_EQ(JsonText(json["choices"][0]["logprobs"]),
            R"({"content":[{"token":"a","logprob":-0.25,"bytes":[97],)"
            R"("top_logprobs":[{"token":"z","logprob":-0.5,"bytes":[122]}]}]})");
}

TEST_F(AnswerTest, TokensMayBeNamedByTheirIds) {
  Answer answer = Completion(
      {.logprobs = true, .tokens_as_ids = true, .return_token_ids = true, .return_timing = true});
  answer.AddPrompt({.text = "p", .token_ids = {'p'}, .logprobs = {}}, Pieces(), 1);
  answer.Add(0, Letter('a', -0.25));
  answer.Add(0, Finish(0, v1::FINISH_REASON_STOP));
  answer.Add(0, Summary(1, 1));
  const Json json = ParseOrderedJson(answer.Finish()).value;
  EXPECT_EQ(json["choices"][0]["logprobs"]["tokens"][0], "token_id:97");
  EXPECT_EQ(json["choices"][0]["token_ids"], Json({97}));
  EXPECT_EQ(json["choices"][0]["prompt_token_ids"], Json({112}));
  EXPECT_EQ(json["timing"][0]["route"], "disaggregated");
  EXPECT_EQ(json["timing"][0]["decode_worker"], "d0");
}

TEST_F(AnswerTest, AnErrorEndsAStreamWithAnEventAndItsEnd) {
  const auto events = EventsIn(Completion({.stream = true}).StreamError(Unavailable("no worker")));
  ASSERT_EQ(events.size(), 2u);
  EXPECT_THAT(events[0], HasSubstr(R"("message":"no worker")"));
  EXPECT_EQ(events[1], "[DONE]");
}

}  // namespace
}  // namespace tandem::openai::answer_test
