#include "model/answer/answer_markup.h"

#include <span>

#include "base/log.h"
#include "base/status.h"
#include "fmt/ranges.h"
#include "model/answer/mark.h"

namespace tandem {
namespace {

using Form = CallMarkup::Form;

struct NamedParser {
  const char* name;
  CallMarkup markup;
};

const std::vector<NamedParser>& ToolParsers() {
  static const auto& parsers = *new std::vector<NamedParser>{
      {"hermes", {.call_open = "<tool_call>", .call_close = "</tool_call>"}},
      {"llama3_json", {.separator = ";"}},
      {"mistral", {.section_open = "[TOOL_CALLS] [", .separator = ",", .section_close = "]"}},
      {"mistral_args", {.form = Form::kNamed, .call_open = "[TOOL_CALLS]", .name_close = "[ARGS]"}},
      {"kimi_k2",
       {.form = Form::kNamed,
        .section_open = "<|tool_calls_section_begin|>",
        .call_open = "<|tool_call_begin|> functions.",
        .call_close = "<|tool_call_end|>",
        .section_close = "<|tool_calls_section_end|>",
        .name_close = "<|tool_call_argument_begin|>"}},
      {"qwen3_coder",
       {.form = Form::kTagged,
        .call_open = "<tool_call> <function=",
        .call_close = "</function> </tool_call>",
        .name_close = ">",
        .key_open = "<parameter=",
        .key_close = ">",
        .value_close = "</parameter>"}},
      {"glm45",
       {.form = Form::kTagged,
        .call_open = "<tool_call>",
        .call_close = "</tool_call>",
        .key_open = "<arg_key>",
        .key_close = "</arg_key> <arg_value>",
        .value_close = "</arg_value>"}},
  };
  return parsers;
}

constexpr char kThink[] = "think";

absl::Status CheckName(std::string_view kind, const std::string& name,
                       const std::vector<std::string>& names) {
  for (const std::string& known : names) {
    if (known == name) return absl::OkStatus();
  }
  return InvalidArgument("{} parser '{}' is unknown: use one of {}", kind, name,
                         fmt::join(names, ", "));
}

AnswerMarkup FoundMarkup(const ChatTemplate* chat, const nlohmann::ordered_json& json) {
  if (!json.is_null()) {
    absl::StatusOr<AnswerMarkup> markup = MarkupOfResponseTemplate(json);
    if (markup.ok()) return *std::move(markup);
    LogWarn("the model's response_template is not used: {}",
            std::string(markup.status().message()));
  }
  return chat == nullptr ? AnswerMarkup() : MarkupOfTemplate(*chat);
}

}  // namespace

bool AnswerMarkup::OpensReasoning(std::string_view end_of_prompt) const {
  if (!reasoning) return false;
  return Trimmed(end_of_prompt).ends_with(reasoning->open);
}

std::vector<std::string> AnswerMarkup::Marks() const {
  std::vector<std::string> marks;
  const auto add = [&](const std::string& mark) {
    if (!mark.empty()) marks.push_back(mark);
  };
  if (reasoning) {
    add(reasoning->open);
    add(reasoning->close);
  }
  if (calls) {
    for (const std::string* mark : {&calls->section_open, &calls->call_open, &calls->separator,
                                    &calls->call_close, &calls->section_close, &calls->name_close,
                                    &calls->key_open, &calls->key_close, &calls->value_close}) {
      add(*mark);
    }
  }
  return marks;
}

std::vector<std::string> ToolParserNames() {
  std::vector<std::string> names = {"auto", "none"};
  for (const NamedParser& parser : ToolParsers()) names.emplace_back(parser.name);
  return names;
}

std::vector<std::string> ReasoningParserNames() { return {"auto", "none", kThink}; }

absl::StatusOr<AnswerMarkup> ChooseMarkup(const ChatTemplate* chat,
                                          const nlohmann::ordered_json& response_template,
                                          const ParserNames& names) {
  RETURN_IF_ERROR(CheckName("tool", names.tools, ToolParserNames()));
  RETURN_IF_ERROR(CheckName("reasoning", names.reasoning, ReasoningParserNames()));
  AnswerMarkup markup;
  if (names.tools != "none" || names.reasoning == "auto") {
    markup = FoundMarkup(chat, response_template);
  }
  if (names.tools != "auto") markup.calls.reset();
  for (const NamedParser& parser : ToolParsers()) {
    if (names.tools == parser.name) markup.calls = parser.markup;
  }
  if (names.reasoning != "auto") markup.reasoning.reset();
  if (names.reasoning == kThink) markup.reasoning = ReasoningMarkup{"<think>", "</think>"};
  return markup;
}

}  // namespace tandem
