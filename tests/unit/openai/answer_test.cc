#include "server/openai/answer.h"

#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/letter_tokenizer.h"

namespace tandem::openai::answer_test {
namespace {

using testing::HasSubstr;
using testing::Not;

// The data of each event.
std::vector<std::string> EventsIn(std::string_view stream) {
  std::vector<std::string> events;
  constexpr std::string_view kBegin = "data: ";
  constexpr std::string_view kEnd = "\n\n";
  while (!stream.empty()) {
    EXPECT_TRUE(stream.starts_with(kBegin)) << stream;
    const size_t end = stream.find(kEnd);
    EXPECT_NE(end, std::string_view::npos);
    events.emplace_back(stream.substr(kBegin.size(), end - kBegin.size()));
    stream.remove_prefix(end + kEnd.size());
  }
  return events;
}

v1::GenerateResponse Chunk(int32_t index, const std::string& text,
                           const std::vector<int32_t>& ids) {
  v1::GenerateResponse event;
  event.mutable_chunk()->set_index(index);
  event.mutable_chunk()->set_text(text);
  event.mutable_chunk()->mutable_token_ids()->Add(ids.begin(), ids.end());
  return event;
}

// A letter with its log-probability, and a less probable one.
v1::GenerateResponse Letter(char letter, float logprob) {
  v1::GenerateResponse event = Chunk(0, std::string(1, letter), {letter});
  v1::TokenLogprobs& entry = *event.mutable_chunk()->add_logprobs();
  entry.mutable_sampled()->set_token_id(letter);
  entry.mutable_sampled()->set_logprob(logprob);
  v1::TokenLogprob& top = *entry.add_top();
  top.set_token_id('z');
  top.set_logprob(-0.5);
  return event;
}

v1::GenerateResponse Finish(int32_t index, v1::FinishReason reason, const std::string& stop = "") {
  v1::GenerateResponse event;
  event.mutable_finish()->set_index(index);
  event.mutable_finish()->set_reason(reason);
  event.mutable_finish()->set_stop(stop);
  event.mutable_finish()->set_route(v1::ROUTE_DISAGGREGATED);
  event.mutable_finish()->set_decode_worker("d0");
  return event;
}

v1::GenerateResponse Summary(int32_t prompt_tokens, int32_t completion_tokens) {
  v1::GenerateResponse event;
  v1::Usage& usage = *event.mutable_summary()->mutable_usage();
  usage.set_prompt_tokens(prompt_tokens);
  usage.set_completion_tokens(completion_tokens);
  usage.set_cached_tokens(2);
  return event;
}

class AnswerTest : public testing::Test {
 protected:
  Answer Completion(const AnswerOptions& options) { return Answer(kHead, options, *completions_); }
  Answer Chat(const AnswerOptions& options) { return Answer(kHead, options, *chats_); }

  PieceOptions Pieces() const {
    return {.max_tokens = 3, .eos_token_ids = {127}, .stop_token_ids = {7}, .tokenizer = &letters_};
  }

  const AnswerHead kHead = {.id = "r1", .created = 5, .model = "m", .fingerprint = "f"};
  const LetterTokenizer letters_{};
  const TokenTexts texts_{&letters_};
  const std::unique_ptr<AnswerFormat> completions_ = NewCompletionFormat(texts_);
  const std::unique_ptr<AnswerFormat> chats_ = NewChatFormat(texts_);
};

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
