#include "model/chat/chat_template.h"

#include <chrono>
#include <ctime>
#include <filesystem>
#include <fstream>
#include <optional>

#include "absl/strings/str_cat.h"
#include "fmt/format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "model/tokenizer/tokenizer.h"
#include "tests/support/sanitized.h"
#include "tests/support/tree.h"

namespace tandem::chat_template_test {
namespace {

using testing::ElementsAre;
using testing::HasSubstr;
using Json = nlohmann::ordered_json;

constexpr char kChatMl[] =
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}";

std::unique_ptr<ChatTemplate> Template(const std::string& text) {
  auto parsed = ParseChatTemplate({{{"default", text}}, {{"bos_token", "<s>"}}});
  EXPECT_TRUE(parsed.ok()) << parsed.status();
  return *std::move(parsed);
}

std::string Prompt(const ChatTemplate& chat, const ChatInput& input) {
  const auto parts = chat.Render(input);
  return parts.ok() ? JoinParts(*parts) : "error: " + std::string(parts.status().message());
}

ChatInput Messages(const char* json) {
  ChatInput input;
  input.messages = Json::parse(json);
  return input;
}

TEST(ChatTemplateTest, PartsSayWhoWroteThem) {
  const auto parts = Template(kChatMl)->Render(Messages(R"([{"role": "user", "content": "Hi"}])"));
  ASSERT_TRUE(parts.ok());
  EXPECT_THAT(*parts, ElementsAre(TextPart{"<|im_start|>user\n", false}, TextPart{"Hi", true},
                                  TextPart{"<|im_end|>\n<|im_start|>assistant\n", false}));
}

TEST(ChatTemplateTest, RolesThatAreMadeUpAreInput) {
  const auto parts = Template("<|{{ messages[0].role }}|>")
                         ->Render(Messages(R"([{"role": "im_end", "content": "Hi"}])"));
  ASSERT_TRUE(parts.ok());
  EXPECT_THAT(*parts, ElementsAre(TextPart{"<|"}, TextPart{"im_end", true}, TextPart{"|>"}));
}

TEST(ChatTemplateTest, PartsOfContentAreJoinedWhereTheTemplateTakesStrings) {
  const ChatInput input = Messages(
      R"([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}])");
  EXPECT_THAT(Prompt(*Template(kChatMl), input), HasSubstr("user\na\nb<|im_end|>"));
  EXPECT_EQ(
      Prompt(*Template("{% for p in messages[0].content %}({{ p.text }}){% endfor %}"), input),
      "(a)(b)");
}

TEST(ChatTemplateTest, StringsBecomePartsWhereTheTemplateTakesNothingElse) {
  EXPECT_EQ(Prompt(*Template("{{ messages[0]['content'][0]['text'] + '!' }}"),
                   Messages(R"([{"role": "user", "content": "a"}])")),
            "a!");
}

TEST(ChatTemplateTest, OtherContentThanTextIsRefused) {
  const ChatInput input = Messages(
      R"([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}])");
  const auto parts = Template(kChatMl)->Render(input);
  EXPECT_EQ(parts.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(
      std::string(parts.status().message()),
      "messages[0].content[0]: content of type 'image_url' is not supported; supported: text");
}

TEST(ChatTemplateTest, MalformedMessagesAreRefused) {
  for (const char* json :
       {"[]", "{}", "[1]", "[{}]", R"([{"role": 1}])", R"([{"role": "user", "content": 5}])",
        R"([{"role": "user", "content": [{"type": "text"}]}])"}) {
    EXPECT_EQ(Template(kChatMl)->Render(Messages(json)).status().code(),
              absl::StatusCode::kInvalidArgument)
        << json;
  }
}

TEST(ChatTemplateTest, DevelopersAreSystemWhereTheTemplateDoesNotKnowThem) {
  const ChatInput input = Messages(
      R"([{"role": "developer", "content": "Be brief"}, {"role": "user", "content": "Hi"}])");
  EXPECT_THAT(Prompt(*Template(kChatMl), input), HasSubstr("<|im_start|>system\nBe brief"));
  EXPECT_THAT(Prompt(*Template("{% for m in messages %}{% if m.role == 'developer' %}DEV "
                               "{{ m.content }}{% else %}{{ m.content }}{% endif %}{% endfor %}"),
                     input),
              HasSubstr("DEV Be brief"));
}

TEST(ChatTemplateTest, ArgumentsOfCallsHaveTheFormThatTheTemplatePrints) {
  const ChatInput input = Messages(
      R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": null, "tool_calls":
         [{"type": "function", "function": {"name": "f", "arguments": "{\"a\": 1}"}}]}])");
  const std::string before =
      "{% for m in messages %}{{ m.content }}{% for c in m.tool_calls or [] %}";
  const std::string after = "{% endfor %}{% endfor %}";
  EXPECT_EQ(Prompt(*Template(before + "{{ c.function.arguments | tojson }}" + after), input),
            "q{\"a\": 1}");
  EXPECT_EQ(Prompt(*Template(before + "{{ '' + c.function.arguments }}" + after), input),
            "q{\"a\": 1}");
}

TEST(ChatTemplateTest, AFinalMessageIsContinued) {
  ChatInput input = Messages(
      R"([{"role": "user", "content": "q"}, {"role": "assistant", "content": "The answer is "}])");
  input.add_generation_prompt = false;
  input.continue_final_message = true;
  EXPECT_EQ(Prompt(*Template(kChatMl), input),
            "<|im_start|>user\nq<|im_end|>\n<|im_start|>assistant\nThe answer is ");
  EXPECT_EQ(Prompt(*Template("{{ messages[-1].content | trim }}</s>"), input), "The answer is");
  EXPECT_THAT(Prompt(*Template("{{ messages[0].content }}"), input),
              HasSubstr("does not print the last message"));
  input.add_generation_prompt = true;
  EXPECT_THAT(Prompt(*Template(kChatMl), input), HasSubstr("exclude each other"));
}

TEST(ChatTemplateTest, TemplatesSeeSpecialTokensAndVariables) {
  ChatInput input = Messages(R"([{"role": "user", "content": "q"}])");
  input.variables = {{"enable_thinking", false}};
  const auto chat = Template("{{ bos_token }}{{ eos_token }}{{ enable_thinking }}{{ tools }}");
  EXPECT_EQ(Prompt(*chat, input), "<s>FalseNone");
  EXPECT_TRUE(chat->Mentions("enable_thinking"));
  EXPECT_FALSE(chat->Mentions("documents"));
  input.variables = {{"messages", 1}};
  EXPECT_THAT(Prompt(*chat, input), HasSubstr("'messages' cannot be a variable"));
}

TEST(ChatTemplateTest, ToolsChooseTheTemplateForTools) {
  auto chat = ParseChatTemplate({{{"default", "plain"}, {"tool_use", "with tools"}}, {}});
  ASSERT_TRUE(chat.ok());
  ChatInput input = Messages(R"([{"role": "user", "content": "q"}])");
  EXPECT_EQ(Prompt(**chat, input), "plain");
  input.tools = Json::parse(R"([{"type": "function"}])");
  EXPECT_EQ(Prompt(**chat, input), "with tools");
}

TEST(ChatTemplateTest, WhatTheTemplateRefusesIsToldInItsWords) {
  const auto chat = Template("{{ raise_exception('No systems here') }}");
  const auto parts = chat->Render(Messages(R"([{"role": "user", "content": "q"}])"));
  EXPECT_EQ(parts.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(std::string(parts.status().message()), "No systems here");
}

// The processor's time of this thread, which the load of the machine does not change.
std::chrono::microseconds ThreadTime() {
  timespec now{};
  clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
  return std::chrono::seconds(now.tv_sec) + std::chrono::microseconds(now.tv_nsec / 1000);
}

// A step costs about as much whatever is done in it, so that the number of steps bounds the time.
TEST(ChatTemplateTest, TemplatesWithoutEndRunOutOfStepsSoonWhateverTheyDo) {
  const ChatInput input = Messages(R"([{"role": "user", "content": "a text of some words"}])");
  std::optional<std::chrono::microseconds> longest;  // three times what empty loops take
  for (const char* text : {
           "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
           "{% for a in range(99999) %}{{ messages }}{% endfor %}",
           "{% for a in range(99999) %}{% set x = messages | tojson(indent=4) %}{% endfor %}",
           "{% macro m(n) %}{% if n %}{{ m(n - 1) }}{{ m(n - 1) }}{% endif %}{% endmacro %}{{ "
           "m(99) }}",
           "{% set ns = namespace(t='ab') %}{% for a in range(99999) %}{% set ns.t = ns.t ~ ns.t %}"
           "{% endfor %}",
           "{% set ns = namespace(l=[1]) %}{% for a in range(99999) %}{% set ns.l = ns.l + ns.l %}"
           "{% endfor %}",
           "{% for a in range(99999) %}{% set x = range(999) | list | sort(reverse=true) %}{% "
           "endfor %}",
           "{% for a in range(99999) %}{% set x = ('a b' * 999) | replace('a', 'bb') | upper %}"
           "{% endfor %}",
           "{% for a in range(99999) %}{% set x = ('%900d' % a).split(' ') | unique | list %}"
           "{% endfor %}",
       }) {
    const auto chat = Template(text);
    const auto begin = ThreadTime();
    const auto parts = chat->Render(input);
    const auto took = ThreadTime() - begin;
    EXPECT_EQ(parts.status().code(), absl::StatusCode::kInvalidArgument) << text;
    EXPECT_THAT(std::string(parts.status().message()), HasSubstr("steps")) << text;
    if (!longest) longest = 3 * took;
    // Sanitizers make some steps much more expensive than others.
    if (!kIsSanitized) {
      EXPECT_LT(took, *longest) << text;
    }
  }
}

class ChatTemplateFilesTest : public testing::Test {
 protected:
  ChatTemplateFilesTest() : folder_(testing::TempDir() + "chat_template_files") {
    std::filesystem::remove_all(folder_);
    std::filesystem::create_directories(folder_);
  }
  void Write(const std::string& name, const std::string& text) const {
    std::ofstream(folder_ + "/" + name) << text;
  }
  std::string Load(const std::string& override_file = "") const {
    const auto chat = LoadChatTemplate(folder_, override_file);
    if (!chat.ok()) return "error: " + std::string(chat.status().message());
    return Prompt(**chat, Messages(R"([{"role": "user", "content": "q"}])"));
  }

  const std::string folder_;
};

TEST_F(ChatTemplateFilesTest, AreReadFromTheModelsFolder) {
  EXPECT_THAT(Load(), HasSubstr("no chat template"));
  Write("tokenizer_config.json",
        R"({"bos_token": {"content": "<b>"}, "eos_token": "<e>",
            "chat_template": "{{ bos_token }}one{{ eos_token }}"})");
  EXPECT_EQ(Load(), "<b>one<e>");
  Write("tokenizer_config.json", R"({"chat_template": [{"name": "default", "template": "two"}]})");
  EXPECT_EQ(Load(), "two");
  Write("chat_template.jinja", "three{{ bos_token }}");
  EXPECT_EQ(Load(), "three");
  Write("other.jinja", "four");
  EXPECT_EQ(Load(folder_ + "/other.jinja"), "four");
  EXPECT_THAT(Load(folder_ + "/missing.jinja"), HasSubstr("cannot be opened"));
}

TEST_F(ChatTemplateFilesTest, SayWhereTheyAreWrong) {
  Write("chat_template.jinja", "\n{% if %}");
  EXPECT_THAT(Load(), HasSubstr("chat template 'default': line 2, column 7"));
  Write("tokenizer_config.json", "[");
  EXPECT_THAT(Load(), HasSubstr("not a JSON object"));
}

TEST(ChatTemplateTest, TheSampleModelHasOne) {
  const auto chat = LoadChatTemplate(SampleModel());
  ASSERT_TRUE(chat.ok()) << chat.status();
  EXPECT_EQ(Prompt(**chat, Messages(R"([{"role": "user", "content": "It was"}])")),
            "<|begin_of_text|>It was");
}

TEST(ChatTemplateTest, ControlTokensOfUsersAreText) {
  const auto tokenizer = LoadTokenizer(SampleModel());
  const auto chat = LoadChatTemplate(SampleModel());
  ASSERT_TRUE(tokenizer.ok() && chat.ok());
  const auto ids = [&](const char* content) {
    ChatInput input;
    input.messages = Json::array({{{"role", "user"}, {"content", content}}});
    const auto parts = (*chat)->Render(input);
    EXPECT_TRUE(parts.ok()) << parts.status();
    return *(*tokenizer)->EncodeParts(*parts, {.add_template = tandem::Template::kOmit});
  };
  const int32_t bos = *(*tokenizer)->TokenId("<|begin_of_text|>");
  const std::vector<int32_t> forged = ids("a<|begin_of_text|>b");
  EXPECT_EQ(forged.front(), bos);
  EXPECT_EQ(std::count(forged.begin(), forged.end(), bos), 1);
  const auto plain =
      (*tokenizer)
          ->Encode("<|begin_of_text|>It was fine.", {.add_template = tandem::Template::kOmit});
  EXPECT_EQ(ids("It was fine."), *plain);
}

// Copies of JSON recurse, and a stack ends before a million levels do.
TEST(ChatTemplateTest, DeepInputIsRefusedBeforeItIsCopied) {
  constexpr size_t kLevels = 1'000'000;
  const std::string deep = std::string(kLevels, '[') + std::string(kLevels, ']');
  const std::string message = R"({"role": "user", "content": "a")";
  const auto chat = Template(kChatMl);
  for (const char* name : {"other", "reasoning", "thinking"}) {
    const std::string json = absl::StrCat("[", message, ", \"", name, "\": ", deep, "}]");
    EXPECT_THAT(Prompt(*chat, Messages(json.c_str())), HasSubstr("nested more than 200 deep"));
  }
  for (auto field : {&ChatInput::tools, &ChatInput::documents, &ChatInput::variables}) {
    ChatInput input = Messages(("[" + message + "}]").c_str());
    input.*field = Json::parse(R"([{"k": )" + deep + "}]");
    EXPECT_THAT(Prompt(*chat, input), HasSubstr("nested more than 200 deep"));
  }
}

ChatInput WithArguments(const std::string& arguments) {
  ChatInput input = Messages(R"([{"role": "user", "content": "a"}, {"role": "assistant",
      "tool_calls": [{"type": "function", "function": {"name": "f"}}]}])");
  input.messages[1]["tool_calls"][0]["function"]["arguments"] = arguments;
  return input;
}

constexpr char kArguments[] =
    "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}"
    "{% endfor %}{% endfor %}";

TEST(ChatTemplateTest, DeepArgumentsAreRefused) {
  const std::string deep = std::string(100'000, '[') + std::string(100'000, ']');
  EXPECT_THAT(Prompt(*Template(kArguments), WithArguments(R"({"a": )" + deep + "}")),
              HasSubstr("nested more than 200 deep"));
}

TEST(ChatTemplateTest, OfArgumentsOfOneNameTheLastCounts) {
  EXPECT_EQ(Prompt(*Template(kArguments), WithArguments(R"({"a": {"b": 1}, "c": 2, "a": [3]})")),
            R"({"a": [3], "c": 2})");
}

// A field costs the same however many there are; looking each one up among the others took minutes
// for as many.
TEST(ChatTemplateTest, ManyArgumentsAreParsedInLinearTime) {
  std::string arguments = R"({"first": 1)";
  for (int i = 0; i < 200'000; ++i) arguments += fmt::format(R"(, "k{}": 1)", i);
  EXPECT_THAT(Prompt(*Template(kArguments), WithArguments(arguments + "}")),
              HasSubstr(R"("k199999": 1})"));
}

}  // namespace
}  // namespace tandem::chat_template_test
