#include "model/answer/answer_reader.h"

#include <algorithm>
#include <random>
#include <string>
#include <vector>

#include "base/json.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace tandem::answer_reader_test {
namespace {

using Kind = AnswerEvent::Kind;
using Calls = ReaderOptions::Calls;

AnswerMarkup Parsers(const std::string& tools, const std::string& reasoning = "think") {
  const auto markup = ChooseMarkup(nullptr, nullptr, {.tools = tools, .reasoning = reasoning});
  EXPECT_TRUE(markup.ok()) << markup.status();
  return markup.value_or(AnswerMarkup());
}

// "content{Hi}call0 name{arguments}end0": one line for an answer, ids left out.
std::string Line(const std::vector<AnswerEvent>& events) {
  std::string line;
  Kind last = Kind::kCallEnd;
  int32_t call = 0;
  bool open = false;
  for (const AnswerEvent& event : events) {
    const bool goes_on = event.kind == last && event.call == call && event.kind != Kind::kCallEnd &&
                         event.kind != Kind::kCallBegin;
    if (!goes_on && open) line += "}";
    if (!goes_on) open = false;
    last = event.kind;
    call = event.call;
    if (event.kind == Kind::kCallBegin) {
      line += fmt::format("call{} {}", event.call, event.name);
      continue;
    }
    if (event.kind == Kind::kCallEnd) {
      line += fmt::format("end{}", event.call);
      continue;
    }
    if (!goes_on) {
      line += event.kind == Kind::kContent     ? "content{"
              : event.kind == Kind::kReasoning ? "reasoning{"
                                               : "{";
    }
    open = true;
    line += event.text;
  }
  return line + (open ? "}" : "");
}

std::string ReadParts(const AnswerMarkup& markup, const ReaderOptions& options,
                      const std::vector<std::string_view>& parts) {
  AnswerReader reader(std::make_shared<const AnswerMarkup>(markup), options);
  std::vector<AnswerEvent> events;
  for (const std::string_view part : parts) {
    for (AnswerEvent& event : reader.Feed(part)) events.push_back(std::move(event));
  }
  for (AnswerEvent& event : reader.Finish()) events.push_back(std::move(event));
  return Line(events);
}

// Reads the text as a whole, in two parts at every place, and byte by byte: always the same.
std::string Read(const AnswerMarkup& markup, std::string_view text, ReaderOptions options = {}) {
  if (options.calls == Calls::kNone) options.calls = Calls::kStreamed;
  const std::string whole = ReadParts(markup, options, {text});
  std::vector<std::string_view> bytes;
  for (size_t i = 0; i < text.size(); ++i) {
    EXPECT_EQ(ReadParts(markup, options, {text.substr(0, i), text.substr(i)}), whole) << i;
    bytes.push_back(text.substr(i, 1));
  }
  EXPECT_EQ(ReadParts(markup, options, bytes), whole);
  return whole;
}

std::string Whole(const AnswerMarkup& markup, std::string_view text) {
  return Read(markup, text, {.calls = Calls::kWhole});
}

TEST(AnswerReaderTest, TextWithoutMarksIsContentAsItIs) {
  const std::string text = "  A < b, {c}: <tool, [d]\n\n ";
  for (const std::string& tools : ToolParserNames()) {
    EXPECT_EQ(Read(Parsers(tools), text), "content{" + text + "}") << tools;
  }
  EXPECT_EQ(ReadParts({}, {}, {text}), "content{" + text + "}");
}

TEST(AnswerReaderTest, ReasoningComesBeforeTheContent) {
  const AnswerMarkup markup = Parsers("none");
  EXPECT_EQ(Read(markup, "<think>\nHm.\nSo </th\n</think>\n\nIt is 4."),
            "reasoning{Hm.\nSo </th}content{It is 4.}");
  EXPECT_EQ(Read(markup, "<think>\n\n</think>\n\nIt is 4."), "content{It is 4.}");
  EXPECT_EQ(Read(markup, "<think>cut off\n"), "reasoning{cut off\n}");
  // Elsewhere the mark is a word like others.
  EXPECT_EQ(Read(markup, "Write <think>x</think>."), "content{Write <think>x</think>.}");
}

TEST(AnswerReaderTest, ReasoningMayBeginInThePrompt) {
  const AnswerMarkup markup = Parsers("none");
  EXPECT_TRUE(markup.OpensReasoning("<|assistant|><think>\n"));
  EXPECT_FALSE(markup.OpensReasoning("<think>\n\n</think>\n\n"));
  EXPECT_EQ(Read(markup, "Hm.</think>4", {.reasoning_open = true}), "reasoning{Hm.}content{4}");
  EXPECT_EQ(Read(markup, "\n<think>Hm.</think>4", {.reasoning_open = true}),
            "reasoning{Hm.}content{4}");
  EXPECT_EQ(Read(markup, "</think>4", {.reasoning_open = true}), "content{4}");
  EXPECT_EQ(Read(Parsers("none", "none"), "Hm.</think>4", {.reasoning_open = true}),
            "content{Hm.</think>4}");
}

TEST(AnswerReaderTest, CallsInJsonBetweenMarks) {
  const AnswerMarkup markup = Parsers("hermes");
  EXPECT_EQ(
      Read(markup,
           "<think>\nLook.\n</think>\n\nI will look.\n<tool_call>\n{\"name\": \"look\", "
           "\"arguments\": {\"at\": [1, \"}</tool_call>\", null]}}\n</tool_call>\n<tool_call>\n"
           "{\"arguments\": {}, \"name\": \"go\", \"id\": 7}\n</tool_call>"),
      "reasoning{Look.}content{I will look.}call0 look{{\"at\": [1, \"}</tool_call>\", "
      "null]}}end0call1 go{{}}end1");
  EXPECT_EQ(Read(markup, R"(<tool_call>{"name":"a"}</tool_call> Done. )"),
            "call0 a{{}}end0content{Done. }");
}

TEST(AnswerReaderTest, ArgumentsMayBeInAStringAndHoldLineBreaks) {
  const AnswerMarkup markup = Parsers("hermes");
  EXPECT_EQ(Read(markup, R"(<tool_call>{"name":"a","arguments":"{\"b\":\"c\"}"}</tool_call>)"),
            "call0 a{{\"b\":\"c\"}}end0");
  EXPECT_EQ(Read(markup, "<tool_call>{\"name\":\"a\",\"arguments\":{\"b\":\"c\nd\"}}</tool_call>"),
            "call0 a{{\"b\":\"c\\nd\"}}end0");
  EXPECT_EQ(Read(markup, R"(<tool_call>{"name":"a","arguments":null}</tool_call>)"),
            "call0 a{{}}end0");
}

TEST(AnswerReaderTest, WhatLooksLikeACallIsContent) {
  const AnswerMarkup markup = Parsers("hermes");
  for (const std::string text :
       {"Use <tool_call> for it.", "<tool_call>{\"name\": 5}</tool_call>", "<tool_call>",
        "<tool_call>{\"name\": \"a\" \"arguments\": {}}</tool_call>", "a <tool_call>\n{}",
        "<tool_call>{\"title\": \"a\"}</tool_call>", "<tool_call>{\"name\": \"a b\"}</tool_call>",
        "<tool_call>{\"name\":\"a\",\"arguments\":\"no\"}</tool_call>",
        "<tool_call>{\"name\":\"a\",\"arguments\":[1]}</tool_call>"}) {
    EXPECT_EQ(Read(markup, text), "content{" + text + "}");
    EXPECT_EQ(Whole(markup, text), "content{" + text + "}");
  }
  EXPECT_EQ(Read(markup, "<tool_call>no <tool_call>{\"name\":\"a\"}</tool_call>"),
            "content{<tool_call>no}call0 a{{}}end0");
}

TEST(AnswerReaderTest, ACallThatGoesWrongEndsThereOrIsContentAsAWhole) {
  const AnswerMarkup markup = Parsers("hermes");
  const std::string text = R"(<tool_call>{"name":"a","arguments":{"b":tru}}</tool_call>)";
  EXPECT_EQ(Read(markup, text), "call0 a{{\"b\":tru}end0content{}}</tool_call>}");
  EXPECT_EQ(Whole(markup, text), "content{" + text + "}");
  const std::string cut = R"(<tool_call>{"name":"a","arguments":{"b":"some te)";
  EXPECT_EQ(Read(markup, cut), "call0 a{{\"b\":\"some te}end0");
  EXPECT_EQ(Whole(markup, cut), "content{" + cut + "}");
  // A mark that is cut off is left out, because its call is whole.
  EXPECT_EQ(Whole(markup, R"(<tool_call>{"name":"a"}</tool_c)"), "call0 a{{}}end0");
}

TEST(AnswerReaderTest, CallsInAList) {
  const AnswerMarkup markup = Parsers("mistral");
  const std::string calls =
      R"([{"name": "a", "arguments": {"b": 1}, "id": "x"}, {"name": "c", "arguments": {}}])";
  const std::string wanted = "call0 a{{\"b\": 1}}end0call1 c{{}}end1";
  EXPECT_EQ(Read(markup, "[TOOL_CALLS]" + calls), wanted);
  EXPECT_EQ(Read(markup, "[TOOL_CALLS] " + calls + "\n"), wanted);
  EXPECT_EQ(Read(markup, "So:\n[TOOL_CALLS]" + calls + " Well."),
            "content{So:}" + wanted + "content{Well.}");
  EXPECT_EQ(Read(markup, "[TOOL_CALLS] none"), "content{[TOOL_CALLS] none}");
  EXPECT_EQ(Read(Parsers("mistral_args"), R"([TOOL_CALLS]a[ARGS]{"b": 1}[TOOL_CALLS]c[ARGS]{})"),
            wanted);
}

TEST(AnswerReaderTest, CallsWithoutMarksAreTheWholeAnswer) {
  const AnswerMarkup markup = Parsers("llama3_json");
  EXPECT_EQ(Read(markup, R"({"name": "a", "parameters": {"b": 1}}; {"name":"c","parameters":{}})"),
            "call0 a{{\"b\": 1}}end0call1 c{{}}end1");
  for (const std::string text : {R"({"city": "Paris"})", R"(It is {"name": "a", "parameters": {}})",
                                 R"({"name": "Bob"})", "{", " {} "}) {
    EXPECT_EQ(Read(markup, text), "content{" + text + "}");
  }
  EXPECT_EQ(Read(markup, R"(<think>x</think> {"name": "a", "parameters": {}})"),
            "reasoning{x}call0 a{{}}end0");
}

TEST(AnswerReaderTest, ArgumentsInTagsBecomeJson) {
  const AnswerMarkup markup = Parsers("qwen3_coder");
  const std::string text =
      "Now.\n<tool_call>\n<function=write>\n<parameter=path>\n12\n</parameter>\n<parameter=text>\n"
      "  if a < "
      "b:\n\t\"x\"\n\n</parameter>\n<parameter=mode>\n12\n</parameter>\n<parameter=on>\nTrue\n"
      "</parameter>\n</function>\n</tool_call>\n<tool_call>\n<function=stop>\n</function>\n</"
      "tool_call>";
  ReaderOptions options;
  options.string_parameters = StringParametersOf(ParseOrderedJson(R"([{"type":
      "function", "function": {"name": "write", "parameters": {"properties": {
      "path": {"type": "string"}, "mode": {"type": "integer"}}}}}, 5, {"name": 7}])")
                                                     .value);
  EXPECT_EQ(
      Read(markup, text, options),
      "content{Now.}call0 write{{\"path\": \"12\", \"text\": \"  if a < b:\\n\\t\\\"x\\\"\\n\", "
      "\"mode\": 12, \"on\": true}}end0call1 stop{{}}end1");
  EXPECT_EQ(Read(Parsers("glm45"),
                 "<tool_call>go\n<arg_key>to</arg_key>\n<arg_value>[1]</arg_value>\n</tool_call>"),
            "call0 go{{\"to\": [1]}}end0");
}

TEST(AnswerReaderTest, IdsDifferAndKeepTheFormThatTheTemplateTakes) {
  AnswerMarkup markup = Parsers("hermes");
  const std::string text =
      R"(<tool_call>{"name":"a"}</tool_call><tool_call>{"name":"a"}</tool_call>)";
  const auto ids = [&](const std::string& seed) {
    AnswerReader reader(std::make_shared<const AnswerMarkup>(markup),
                        {.calls = Calls::kStreamed, .id_seed = seed});
    std::vector<std::string> found;
    for (const AnswerEvent& event : reader.Feed(text)) {
      if (event.kind == Kind::kCallBegin) found.push_back(event.id);
    }
    EXPECT_EQ(reader.num_calls(), 2);
    return found;
  };
  const auto first = ids("r1/0");
  EXPECT_EQ(first, ids("r1/0"));
  EXPECT_THAT(first, testing::Each(testing::MatchesRegex("call_[0-9a-z]{24}")));
  EXPECT_NE(first[0], first[1]);
  EXPECT_NE(first[0], ids("r1/1")[0]);
  markup.short_call_ids = true;
  EXPECT_THAT(ids("r1/0"), testing::Each(testing::MatchesRegex("[0-9a-z]{9}")));
}

TEST(AnswerReaderTest, WhatWaitsIsBounded) {
  const AnswerMarkup markup = Parsers("hermes");
  const std::string spaces(10000, ' ');
  EXPECT_EQ(ReadParts(markup, {.calls = Calls::kStreamed}, {"a", spaces, spaces, "b"}),
            "content{a" + spaces + spaces + "b}");
  const std::string open = R"(<tool_call>{"name":"a","arguments":{"b":")";
  const std::string value(2 * AnswerReader::kMaxHeldBytes, 'x');
  EXPECT_EQ(ReadParts(markup, {.calls = Calls::kStreamed}, {open, value, "\"}}</tool_call>"}),
            "call0 a{{\"b\":\"" + value + "\"}}end0");
  EXPECT_EQ(ReadParts(markup, {.calls = Calls::kWhole}, {open, value, "\"}}</tool_call>"}),
            "content{" + open + value + "\"}}</tool_call>}");
}

// Answers of random parts, some of which look like calls: what the events say and the marks around
// it are the whole answer again, but for white space.
TEST(AnswerReaderTest, NoTextIsLost) {
  const std::vector<std::string> parts = {
      "It was ",
      "a < b ",
      "<tool",
      "_call>",
      "<tool_call>",
      "</tool_call>",
      "\n",
      "  ",
      "{\"name\":",
      "<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":[1,{\"b\":\"<tool_call>\"}]}}</tool_call>",
      "<tool_call>\n{\"name\":\"g\",\"arguments\":{}}\n</tool_call>\n",
      "<tool_call>{\"name\":\"h\",\"arguments\":{\"a\":1]}</tool_call>",
      "<think>",
      "</think>",
      "é"};
  const AnswerMarkup markup = Parsers("hermes");
  const auto without_space = [](std::string text) {
    std::erase_if(text, [](char c) { return c == ' ' || c == '\n'; });
    return text;
  };
  std::mt19937 random(7);
  for (int i = 0; i < 3000; ++i) {
    std::string text;
    for (size_t n = random() % 9; n > 0; --n) text += parts[random() % parts.size()];
    AnswerReader reader(std::make_shared<const AnswerMarkup>(markup), {.calls = Calls::kWhole});
    std::string again;
    bool reasons = false;
    const auto add = [&](const std::vector<AnswerEvent>& events) {
      for (const AnswerEvent& event : events) {
        if (event.kind == Kind::kCallBegin) {
          again += "<tool_call>{\"name\":\"" + event.name + "\",\"arguments\":";
        }
        if (event.kind == Kind::kReasoning) reasons = true;
        again += event.text;
        if (event.kind == Kind::kCallEnd) again += "}</tool_call>";
      }
    };
    for (size_t at = 0; at < text.size();) {
      const size_t size = 1 + random() % 7;
      add(reader.Feed(std::string_view(text).substr(at, size)));
      at += size;
    }
    add(reader.Finish());
    std::string wanted = without_space(text);
    // Marks of reasoning are left out, where they are at the beginning or after a call.
    const auto unmarked = [](std::string marked) {
      for (const std::string_view mark : {"<think>", "</think>"}) {
        for (size_t at = marked.find(mark); at != std::string::npos; at = marked.find(mark)) {
          marked.erase(at, mark.size());
        }
      }
      return marked;
    };
    EXPECT_EQ(unmarked(without_space(again)), unmarked(wanted)) << text << " " << reasons;
  }
}

TEST(AnswerReaderTest, WithoutToolsNothingIsSearchedForCalls) {
  const std::string text = R"(<tool_call>{"name":"a"}</tool_call>)";
  EXPECT_EQ(ReadParts(Parsers("hermes"), {}, {text}), "content{" + text + "}");
}

}  // namespace
}  // namespace tandem::answer_reader_test
