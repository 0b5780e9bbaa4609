#include "model/chat/chat_template.h"

#include <algorithm>
#include <utility>

#include "base/status.h"
#include "base/utf8.h"
#include "model/chat/chat_abilities.h"
#include "model/chat/chat_messages.h"
#include "model/chat/chat_values.h"
#include "model/chat/jinja/characters.h"
#include "model/chat/jinja/evaluator.h"
#include "model/chat/jinja/syntax.h"

namespace tandem {
namespace {

using jinja::Text;
using jinja::Value;

// A step takes about 40 ns, so that a loop without end is refused after 20 ms.
constexpr int64_t kBaseSteps = 500'000;
constexpr int64_t kStepsPerNode = 256;  // steps per value in the JSON of the input
constexpr int64_t kStepsPerByte = 2;
// Marks the end of the last message in a rendered prompt. The tag ends with a space, which shows
// whether the template trims the content of messages.
constexpr std::string_view kContinueTag = "CONTINUE_FINAL_MESSAGE_TAG ";

struct Variant {
  std::string name;
  std::unique_ptr<const jinja::Program> program;
  ChatAbilities abilities;
};

std::vector<TextPart> PartsOf(const Text& text) {
  std::vector<TextPart> parts;
  size_t at = 0;
  const auto add = [&](size_t end, bool from_input) {
    if (at < end) parts.push_back({text.bytes().substr(at, end - at), from_input});
    at = end;
  };
  for (const Text::Range& range : text.input()) {
    add(range.begin, false);
    add(range.end, true);
  }
  add(text.size(), false);
  return parts;
}

std::string_view Stripped(std::string_view text) {
  const jinja::Trimmed trimmed = jinja::Trim(text, nullptr, jinja::Side::kBoth);
  return text.substr(trimmed.begin, trimmed.end - trimmed.begin);
}

// Cuts a rendered prompt off where the last message ends, at kContinueTag.
absl::Status CutAtTag(std::string_view last_content, Text& text) {
  const std::string_view tag = Stripped(kContinueTag);
  const size_t at = text.view().rfind(tag);
  if (at == std::string::npos ||
      jinja::FindText(text.view(), Stripped(last_content)) == std::string::npos) {
    return InvalidArgument(
        "continue_final_message: the model's chat template does not print the last message as it "
        "is");
  }
  const bool keeps_space = text.view().substr(at).starts_with(kContinueTag);
  text.Resize(at);
  if (!keeps_space) text.Resize(jinja::Trim(text.view(), nullptr, jinja::Side::kRight).end);
  return absl::OkStatus();
}

absl::Status CheckArray(const ChatJson& json, std::string_view name) {
  if (json.is_null()) return absl::OkStatus();
  const bool objects =
      json.is_array() &&
      std::all_of(json.begin(), json.end(), [](const auto& item) { return item.is_object(); });
  if (!objects) return InvalidArgument("{}: expected an array of objects", name);
  return absl::OkStatus();
}

absl::Status CheckInput(const ChatInput& input) {
  for (const ChatJson* json : {&input.messages, &input.tools, &input.documents, &input.variables}) {
    RETURN_IF_ERROR(CheckNesting(*json));
  }
  RETURN_IF_ERROR(CheckMessages(input.messages));
  RETURN_IF_ERROR(CheckArray(input.tools, "tools"));
  RETURN_IF_ERROR(CheckArray(input.documents, "documents"));
  if (!input.variables.is_null() && !input.variables.is_object()) {
    return InvalidArgument("the variables of a chat template are an object");
  }
  for (const char* name : {"messages", "tools", "documents", "add_generation_prompt"}) {
    if (input.variables.is_object() && input.variables.contains(name)) {
      return InvalidArgument("'{}' cannot be a variable of its own: give it beside them", name);
    }
  }
  if (input.add_generation_prompt && input.continue_final_message) {
    return InvalidArgument("add_generation_prompt and continue_final_message exclude each other");
  }
  return absl::OkStatus();
}

class JinjaChatTemplate final : public ChatTemplate {
 public:
  JinjaChatTemplate(std::vector<Variant> variants,
                    std::vector<ChatTemplateSource::SpecialToken> tokens)
      : variants_(std::move(variants)), special_tokens_(std::move(tokens)) {
    for (Variant& variant : variants_) {
      variant.abilities =
          ProbeTemplate([this, &variant](const ChatJson& messages,
                                         const ChatJson& tools) -> absl::StatusOr<std::string> {
            ChatInput input;
            input.tools = tools;
            ASSIGN_OR_RETURN(const Text text, RenderText(variant, messages, input));
            return text.bytes();
          });
    }
  }

  absl::StatusOr<std::vector<TextPart>> Render(const ChatInput& input) const override {
    RETURN_IF_ERROR(CheckInput(input));
    const Variant& variant = Choose(input);
    ASSIGN_OR_RETURN(ChatJson messages, AdaptMessages(input.messages, variant.abilities));
    std::string last_content;
    if (input.continue_final_message) {
      ASSIGN_OR_RETURN(last_content, AppendToLastContent(messages, kContinueTag));
    }
    ASSIGN_OR_RETURN(Text text, RenderText(variant, messages, input));
    if (input.continue_final_message) RETURN_IF_ERROR(CutAtTag(last_content, text));
    return PartsOf(text);
  }

  bool Mentions(std::string_view variable) const override {
    return std::any_of(variants_.begin(), variants_.end(), [&](const Variant& variant) {
      return variant.program->loaded.contains(variant.program->symbols.Find(variable));
    });
  }

 private:
  // Chooses a template as transformers does: with tools, the template for tools if there is one.
  const Variant& Choose(const ChatInput& input) const {
    const auto find = [this](std::string_view name) {
      return std::find_if(variants_.begin(), variants_.end(),
                          [&](const Variant& variant) { return variant.name == name; });
    };
    const bool tools = input.tools.is_array() && !input.tools.empty();
    const auto tool_use = find("tool_use");
    return tools && tool_use != variants_.end() ? *tool_use : *find("default");
  }

  absl::StatusOr<Text> RenderText(const Variant& variant, const ChatJson& messages,
                                  const ChatInput& input) const {
    ChatValues values;
    jinja::Variables variables;
    ASSIGN_OR_RETURN(Value converted, values.ConvertMessages(messages));
    variables.emplace_back("messages", std::move(converted));
    const bool has_tools = !input.tools.is_null() && !input.tools.empty();
    converted = Value();
    if (has_tools) {
      ASSIGN_OR_RETURN(converted, values.Convert(input.tools));
    }
    variables.emplace_back("tools", std::move(converted));
    ASSIGN_OR_RETURN(converted, values.Convert(input.documents));
    variables.emplace_back("documents", std::move(converted));
    variables.emplace_back("add_generation_prompt", Value(input.add_generation_prompt));
    for (const auto& [name, text] : special_tokens_) {
      variables.emplace_back(name, Value::String(text));
    }
    if (input.variables.is_object()) {
      // items() would give the names as temporaries, but `variables` refers to them.
      for (const auto& [name, json] : input.variables.get_ref<const ChatJson::object_t&>()) {
        ASSIGN_OR_RETURN(converted, values.Convert(json));
        variables.emplace_back(name, std::move(converted));
      }
    }
    const int64_t steps = kBaseSteps + kStepsPerNode * static_cast<int64_t>(values.nodes()) +
                          kStepsPerByte * static_cast<int64_t>(values.bytes());
    jinja::Machine machine(steps, input.now);
    return jinja::Render(*variant.program, variables, machine);
  }

  std::vector<Variant> variants_;
  const std::vector<ChatTemplateSource::SpecialToken> special_tokens_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<ChatTemplate>> ParseChatTemplate(ChatTemplateSource source) {
  std::vector<Variant> variants;
  int defaults = 0;
  for (const auto& [name, text] : source.templates) {
    const size_t valid = ValidUtf8Prefix(text);
    if (valid < text.size()) {
      return InvalidArgument("chat template '{}': byte {} begins no character of UTF-8", name,
                             valid);
    }
    absl::StatusOr<std::unique_ptr<const jinja::Program>> program = jinja::Parse(text);
    if (!program.ok()) {
      return Annotate(program.status(), fmt::format("chat template '{}'", name));
    }
    defaults += name == "default" ? 1 : 0;
    variants.push_back({name, *std::move(program), {}});
  }
  if (defaults != 1) {
    return InvalidArgument("chat template: exactly one must have the name 'default', {} have",
                           defaults);
  }
  return std::make_unique<JinjaChatTemplate>(std::move(variants), std::move(source.special_tokens));
}

absl::StatusOr<std::unique_ptr<ChatTemplate>> LoadChatTemplate(const std::string& model_dir,
                                                               const std::string& override_file) {
  ASSIGN_OR_RETURN(ChatTemplateSource source, ReadChatTemplate(model_dir, override_file));
  absl::StatusOr<std::unique_ptr<ChatTemplate>> chat = ParseChatTemplate(std::move(source));
  if (!chat.ok()) {
    return Annotate(chat.status(), override_file.empty() ? model_dir : override_file);
  }
  return chat;
}

std::string JoinParts(const std::vector<TextPart>& parts) {
  std::string text;
  for (const TextPart& part : parts) text += part.text;
  return text;
}

}  // namespace tandem
