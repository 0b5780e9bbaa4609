#pragma once

#include <chrono>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer/text_part.h"
#include "nlohmann/json.hpp"

namespace tandem {

// The input of a chat template. JSON objects are printed in the order of their fields, which is why
// they must be parsed as ordered_json.
struct ChatInput {
  // An array of at least one message: {"role": "user", "content": "..."}. Content may be a string,
  // null, or an array of {"type": "text", "text": "..."}.
  nlohmann::ordered_json messages;
  nlohmann::ordered_json tools;      // null, or an array of tools as in OpenAI's API
  nlohmann::ordered_json documents;  // null, or an array of objects
  // Null, or an object of further variables of the template, such as {"enable_thinking": false}.
  nlohmann::ordered_json variables;
  // Ends the prompt with the start of an answer of the assistant.
  bool add_generation_prompt = true;
  // Ends the prompt inside of the last message, so that the model continues it. Excludes
  // add_generation_prompt.
  bool continue_final_message = false;
  // The time that the template function strftime_now prints, in UTC.
  std::chrono::system_clock::time_point now;
};

// The texts of a template and of the special tokens that it names (bos_token and the like).
struct ChatTemplateSource {
  struct Named {
    std::string name;  // "default", "tool_use"
    std::string text;
  };
  struct SpecialToken {
    std::string name;  // "bos_token"
    std::string text;  // "<|begin_of_text|>"
  };
  std::vector<Named> templates;  // exactly one of the name "default" is required to render
  std::vector<SpecialToken> special_tokens;
};

// Reads chat_template.jinja, or else the field chat_template of tokenizer_config.json, and the
// special tokens of the latter, from a model's folder. `override_file`, unless empty, is read in
// place of the model's own template. NOT_FOUND when the model has no template.
absl::StatusOr<ChatTemplateSource> ReadChatTemplate(const std::string& model_dir,
                                                    const std::string& override_file = "");

// The chat template of a model: messages to prompt, as transformers' apply_chat_template does it.
// Immutable and thread-safe. A template comes from the model's folder and is not trusted: it
// reaches nothing but its input, and its steps, depth and output are bounded
// (docs/chat_templates.md).
class ChatTemplate {
 public:
  virtual ~ChatTemplate() = default;

  // Renders the prompt in parts, each written by the template or taken from the input, adjacent
  // parts never of the same kind. Tokenize it with Tokenizer::EncodeParts and Template::kOmit,
  // because templates write the first token (BOS) themselves.
  //
  // INVALID_ARGUMENT, with a text meant for the client: a message that is not as ChatInput says,
  // content other than text, whatever the template itself refuses (raise_exception), a template
  // that fails with this input or takes more steps or bytes than are allowed.
  virtual absl::StatusOr<std::vector<TextPart>> Render(const ChatInput& input) const = 0;

  // Whether the template mentions a variable of this name, such as "tools" or "enable_thinking".
  virtual bool Mentions(std::string_view variable) const = 0;
};

// Parses a chat template. INVALID_ARGUMENT for a template that is not Jinja, UNIMPLEMENTED for
// Jinja that this build does not have; both name the template, line and column.
absl::StatusOr<std::unique_ptr<ChatTemplate>> ParseChatTemplate(ChatTemplateSource source);

// Reads and parses the chat template of a model's folder. Errors as ReadChatTemplate and
// ParseChatTemplate.
absl::StatusOr<std::unique_ptr<ChatTemplate>> LoadChatTemplate(
    const std::string& model_dir, const std::string& override_file = "");

// The whole text of a rendered prompt.
std::string JoinParts(const std::vector<TextPart>& parts);

}  // namespace tandem
