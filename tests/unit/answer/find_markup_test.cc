// What is found of the templates that the goldens of chat templates are made of, and of small ones
// in the forms of other families.
#include <fstream>
#include <iterator>
#include <string>

#include "base/json.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/answer/answer_reader.h"
#include "tests/support/tree.h"

namespace tandem::find_markup_test {
namespace {

using Form = CallMarkup::Form;
using Json = nlohmann::ordered_json;
using testing::HasSubstr;

AnswerMarkup Found(const std::string& text) {
  const auto chat =
      ParseChatTemplate({{{"default", text}}, {{"bos_token", "<s>"}, {"eos_token", "</s>"}}});
  EXPECT_TRUE(chat.ok()) << chat.status();
  return MarkupOfTemplate(**chat);
}

AnswerMarkup FoundIn(const std::string& name) {
  std::ifstream file(TreePath("tests/golden/chat/templates/") + name + ".jinja");
  EXPECT_TRUE(file) << name;
  return Found({std::istreambuf_iterator<char>(file), {}});
}

// A template whose assistant writes this for its calls.
std::string Calling(const std::string& calls) {
  return "{% for m in messages %}<|{{ m.role }}|>{{ m.content or '' }}"
         "{% if m.tool_calls %}" +
         calls +
         "{% endif %}<|end|>{% endfor %}{% if add_generation_prompt %}<|assistant|>{% endif %}";
}

const ReasoningMarkup kThink{"<think>", "</think>"};
const CallMarkup kHermes{.call_open = "<tool_call>", .call_close = "</tool_call>"};

TEST(FindMarkupTest, GoldenTemplates) {
  EXPECT_EQ(FoundIn("thinking_and_tools"), (AnswerMarkup{kThink, kHermes}));
  EXPECT_EQ(FoundIn("roles_in_tags"), (AnswerMarkup{.calls = kHermes}));
  EXPECT_EQ(FoundIn("headers_with_tools"), (AnswerMarkup{.calls = CallMarkup{.separator = ";"}}));
  EXPECT_EQ(FoundIn("bracketed_tools"),
            (AnswerMarkup{.calls = CallMarkup{.section_open = "[TOOL_CALLS] [",
                                              .separator = ",",
                                              .section_close = "]"},
                          .short_call_ids = true}));
  // It writes the second call in another form than the first.
  EXPECT_EQ(FoundIn("one_line"), (AnswerMarkup{.reasoning = kThink}));
  for (const char* name :
       {"channels", "chatml", "everything", "instruct", "role_tokens", "turns"}) {
    EXPECT_EQ(FoundIn(name), AnswerMarkup()) << name;
  }
}

TEST(FindMarkupTest, NamesBeforeTheArguments) {
  const AnswerMarkup tags = Found(Calling(
      "{% for c in m.tool_calls %}<function={{ c.function.name }}>{{ c.function.arguments | tojson "
      "}}</function>{% endfor %}"));
  EXPECT_EQ(tags.calls, (CallMarkup{.form = Form::kNamed,
                                    .call_open = "<function=",
                                    .call_close = "</function>",
                                    .name_close = ">"}));
  const AnswerMarkup section =
      Found(Calling("<|calls|>{% for c in m.tool_calls %}<|call|>{{ c.function.name }}<|sep|>{{ "
                    "c.function.arguments | tojson }}<|call_end|>{% endfor %}<|calls_end|>"));
  EXPECT_EQ(section.calls, (CallMarkup{.form = Form::kNamed,
                                       .section_open = "<|calls|>",
                                       .call_open = "<|call|>",
                                       .call_close = "<|call_end|>",
                                       .section_close = "<|calls_end|>",
                                       .name_close = "<|sep|>"}));
  // The template prints the id in place of the name.
  const AnswerMarkup ids = Found(Calling(
      "{% for c in m.tool_calls %}<|call|>{{ c.id }}<|args|>{{ c.function.arguments | tojson }}"
      "<|call_end|>{% endfor %}"));
  EXPECT_EQ(ids.calls, (CallMarkup{.form = Form::kNamed,
                                   .call_open = "<|call|>functions.",
                                   .call_close = "<|call_end|>",
                                   .name_close = "<|args|>"}));
}

TEST(FindMarkupTest, ArgumentsInTags) {
  const AnswerMarkup markup = Found(Calling(
      "{% for c in m.tool_calls %}\n<tool_call>\n<function={{ c.function.name }}>\n{% for k, v in "
      "c.function.arguments.items() %}<parameter={{ k }}>\n{{ v if v is string else v | tojson }}\n"
      "</parameter>\n{% endfor %}</function>\n</tool_call>{% endfor %}"));
  EXPECT_EQ(markup.calls, (CallMarkup{.form = Form::kTagged,
                                      .call_open = "<tool_call>\n<function=",
                                      .call_close = "</function>\n</tool_call>",
                                      .name_close = ">",
                                      .key_open = "<parameter=",
                                      .key_close = ">",
                                      .value_close = "</parameter>"}));
}

TEST(FindMarkupTest, WhatDoesNotReadBackIsNotTaken) {
  // Calls of Python, words as marks, and values whose form depends on their type.
  for (const char* calls :
       {"[{% for c in m.tool_calls %}{{ c.function.name }}(probe_key='{{ "
        "c.function.arguments.probe_key }}'){% endfor %}]",
        "{% for c in m.tool_calls %}Call {{ c.function.name }} with {{ c.function.arguments | "
        "tojson "
        "}}{% endfor %}",
        "{% for c in m.tool_calls %}<f={{ c.function.name }}>{% for k, v in "
        "c.function.arguments.items() %}<p={{ k }} text={{ v is string }}>{{ v }}</p>{% endfor "
        "%}</f>{% endfor %}"}) {
    EXPECT_EQ(Found(Calling(calls)).calls, std::nullopt) << calls;
  }
}

TEST(FindMarkupTest, ReasoningThatTheTemplateWrites) {
  const std::string text =
      "{% for m in messages %}<|{{ m.role }}|>{% if m.reasoning_content %}[THINK]{{ "
      "m.reasoning_content }}[/THINK]{% endif %}{{ m.content }}{% endfor %}";
  EXPECT_EQ(Found(text).reasoning, (ReasoningMarkup{"[THINK]", "[/THINK]"}));
  // Or begins itself.
  EXPECT_EQ(Found("{{ messages[0].content }}{% if add_generation_prompt %}<think>\n{% endif %}")
                .reasoning,
            kThink);
}

TEST(FindMarkupTest, AResponseTemplateIsTaken) {
  const auto markup = MarkupOfResponseTemplate(ParseOrderedJson(R"({"version": 1,
      "defaults": {"role": "assistant"}, "start_anchor": "<|im_start|>assistant\n", "fields": {
      "thinking": {"open": "<think>", "close": "</think>"},
      "content": {"close": "<|im_end|>"},
      "tool_calls": {"open": "<tool_call>", "close": "</tool_call>", "repeats": true,
        "content": "json", "transform": {"type": "function", "function": "{content}"}}}})")
                                                   .value);
  ASSERT_TRUE(markup.ok()) << markup.status();
  EXPECT_EQ(*markup, (AnswerMarkup{kThink, kHermes}));
}

TEST(FindMarkupTest, PatternsOfAResponseTemplateBecomeMarks) {
  const auto calls = [](const char* field) {
    Json json;
    json["fields"]["tool_calls"] = ParseOrderedJson(field).value;
    const auto markup = MarkupOfResponseTemplate(json);
    EXPECT_TRUE(markup.ok()) << markup.status();
    return markup.ok() ? markup->calls : std::nullopt;
  };
  EXPECT_EQ(calls(R"({"open_pattern": "<tool_call>\\s*<function=(?P<name>\\w+)>",
                      "close": "</tool_call>", "content": "xml-inline", "content_args": {
                      "tag_pattern": "<parameter=(?P<key>\\w+)>\\s*(?P<value>.*?)\\s*</parameter>",
                      "value_parser": {"name": "json", "args": {"allow_non_json": true}}},
                      "transform": {"type": "function", "function":
                      {"name": "{name}", "arguments": "{content}"}}})"),
            (CallMarkup{.form = Form::kTagged,
                        .call_open = "<tool_call> <function=",
                        .call_close = "</tool_call>",
                        .name_close = ">",
                        .key_open = "<parameter=",
                        .key_close = ">",
                        .value_close = "</parameter>"}));
  EXPECT_EQ(
      calls(R"({"open": "<|ACTION|>", "close": "<|END|>", "content": "json",
                      "transform_each": true, "transform": {"type": "function", "function":
                      {"name": "{tool_name}", "arguments": "{parameters}"}}})"),
      (CallMarkup{.section_open = "<|ACTION|> [", .separator = ",", .section_close = "] <|END|>"}));
  EXPECT_EQ(calls(R"({"open_pattern": "\\[CALL\\](?P<name>[^\\[]+)\\[ARGS\\]", "close": "eos",
                      "content": "json"})"),
            (CallMarkup{.form = Form::kNamed, .call_open = "[CALL]", .name_close = "[ARGS]"}));
}

TEST(FindMarkupTest, WhatAResponseTemplateCannotSayHereIsNamed) {
  struct Refused {
    const char* json;
    const char* wanted;
  };
  const std::vector<Refused> refused = {
      {R"j([])j", "must be an object"},
      {R"j({"fields": 5})j", "fields must be an object"},
      {R"j({"version": 2, "fields": {}})j", "version"},
      {R"j({"fields": {}, "grammar": 1})j", "response_template.grammar"},
      {R"j({"fields": {"audio": {}}})j", "fields.audio"},
      {R"j({"fields": {"content": {"open": "<r>"}}})j", "fields.content"},
      {R"j({"fields": {"thinking": {"open_pattern": "(?:^|<t>)", "close": "</t>"}}})j",
       "\"(?:^|<t>)\" is not supported from character 0"},
      {R"j({"fields": {"thinking": {"open_pattern": "<t>+", "close": "</t>"}}})j",
       "from character 3"},
      {R"j({"fields": {"thinking": {"open": ["<a>", "<b>"], "close": "</t>"}}})j",
       "must be one text"},
      {R"j({"fields": {"tool_calls": {"open": "<c>", "content": "kv-lines"}}})j", "kv-lines"},
      {R"j({"fields": {"tool_calls": {"open": "<c>", "content": "json",
          "content_args": {"unquoted_keys": true}}}})j",
       "content_args"},
      {R"j({"fields": {"tool_calls": {"open": "<c>", "content": "json",
          "transform": {"function": {"name": "x"}}}}})j",
       "transform"},
      {R"j({"fields": {"tool_calls": {"open_pattern": "to=(?P<name>\\w+).*?<m>"}}})j",
       "is not supported from character 16"}};
  for (const Refused& one : refused) {
    const auto markup = MarkupOfResponseTemplate(ParseOrderedJson(one.json).value);
    ASSERT_FALSE(markup.ok()) << one.json;
    EXPECT_THAT(std::string(markup.status().message()), HasSubstr(one.wanted));
  }
}

TEST(FindMarkupTest, ParsersAreChosenByName) {
  const auto chat =
      ParseChatTemplate({{{"default", Calling("{% for c in m.tool_calls %}<c>{{ "
                                              "c.function | tojson }}</c>{% endfor %}")}},
                         {}});
  ASSERT_TRUE(chat.ok());
  const auto chosen = [&](const ParserNames& names, const char* json = "null") {
    return ChooseMarkup(chat->get(), ParseOrderedJson(json).value, names);
  };
  EXPECT_EQ(chosen({})->calls, (CallMarkup{.call_open = "<c>", .call_close = "</c>"}));
  EXPECT_EQ(*chosen({.tools = "hermes", .reasoning = "think"}), (AnswerMarkup{kThink, kHermes}));
  EXPECT_EQ(*chosen({.tools = "none", .reasoning = "none"}), AnswerMarkup());
  const char* field =
      R"({"fields": {"tool_calls": {"open": "<d>", "close": "</d>", "content": "json"}}})";
  EXPECT_EQ(chosen({}, field)->calls, (CallMarkup{.call_open = "<d>", .call_close = "</d>"}));
  EXPECT_EQ(chosen({}, R"({"fields": 5})")->calls, chosen({})->calls) << "the template's instead";
  const auto unknown = chosen({.tools = "hermès"});
  EXPECT_THAT(std::string(unknown.status().message()),
              HasSubstr("tool parser 'hermès' is unknown: use one of auto, none, hermes"));
}

}  // namespace
}  // namespace tandem::find_markup_test
