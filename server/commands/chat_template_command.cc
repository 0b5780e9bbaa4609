#include <chrono>
#include <fstream>
#include <iostream>
#include <memory>
#include <sstream>

#include "CLI/CLI.hpp"
#include "base/json.h"
#include "base/status.h"
#include "fmt/ranges.h"
#include "model/chat/chat_json.h"
#include "model/chat/chat_template.h"
#include "model/tokenizer/tokenizer.h"
#include "server/commands/commands.h"

namespace tandem {
namespace {

struct ChatTemplateFlags {
  std::string model_dir;
  std::string template_file;
  std::string messages = "-";
  std::string variables;
  bool no_generation_prompt = false;
  bool continue_final_message = false;
  bool token_ids = false;
  bool marks = false;
};

absl::StatusOr<std::string> ReadInput(const std::string& path) {
  std::ostringstream text;
  if (path == "-") {
    text << std::cin.rdbuf();
    return text.str();
  }
  std::ifstream file(path, std::ios::binary);
  if (!file) return NotFound("{}: cannot be opened", path);
  text << file.rdbuf();
  return text.str();
}

// Reads the input file: a list of messages, or the body of a chat completion.
absl::StatusOr<ChatInput> ReadChatInput(const ChatTemplateFlags& flags) {
  ASSIGN_OR_RETURN(const std::string text, ReadInput(flags.messages));
  ASSIGN_OR_RETURN(ChatJson json, ParseChatJson(text));
  if (!json.is_array() && !json.is_object()) {
    return InvalidArgument("{}: expected JSON: an array of messages, or an object with 'messages'",
                           flags.messages);
  }
  ChatInput input;
  input.now = std::chrono::system_clock::now();
  input.add_generation_prompt = !flags.no_generation_prompt && !flags.continue_final_message;
  input.continue_final_message = flags.continue_final_message;
  if (json.is_array()) {
    input.messages = std::move(json);
  } else {
    input.messages = json.value("messages", ChatJson());
    input.tools = json.value("tools", ChatJson());
    input.documents = json.value("documents", ChatJson());
    input.variables = json.value("chat_template_kwargs", ChatJson());
  }
  if (!flags.variables.empty()) {
    ASSIGN_OR_RETURN(input.variables, ParseChatJson(flags.variables));
    if (!input.variables.is_object()) return InvalidArgument("--variables: expected a JSON object");
  }
  return input;
}

absl::Status PrintPrompt(const ChatTemplateFlags& flags) {
  ASSIGN_OR_RETURN(const auto chat, LoadChatTemplate(flags.model_dir, flags.template_file));
  ASSIGN_OR_RETURN(const ChatInput input, ReadChatInput(flags));
  ASSIGN_OR_RETURN(const std::vector<TextPart> parts, chat->Render(input));
  if (flags.token_ids) {
    ASSIGN_OR_RETURN(const auto tokenizer, LoadTokenizer(flags.model_dir));
    ASSIGN_OR_RETURN(const std::vector<int32_t> ids,
                     tokenizer->EncodeParts(parts, {.add_template = Template::kOmit}));
    fmt::print("{}\n", fmt::join(ids, ","));
    return absl::OkStatus();
  }
  if (!flags.marks) {
    fmt::print("{}\n", JoinParts(parts));
    return absl::OkStatus();
  }
  for (const TextPart& part : parts) {
    fmt::print("{:<9}{}\n", part.from_input ? "input" : "template", JsonString(part.text));
  }
  return absl::OkStatus();
}

}  // namespace

void AddChatTemplateCommand(CLI::App& app, Action& chosen) {
  auto flags = std::make_shared<ChatTemplateFlags>();
  CLI::App* command = app.add_subcommand("chat-template",
                                         "Print the prompt that a chat template makes of messages");
  command->add_option("--model", flags->model_dir, "the model's folder")->required();
  command
      ->add_option("--messages", flags->messages,
                   "file with a JSON array of messages, or a chat request with messages, tools and "
                   "chat_template_kwargs; - reads the standard input")
      ->capture_default_str();
  command->add_option("--chat-template", flags->template_file,
                      "file with a template that takes the place of the model's");
  command->add_option("--variables", flags->variables,
                      "JSON object of further variables, such as {\"enable_thinking\": false}");
  command->add_flag("--no-generation-prompt", flags->no_generation_prompt,
                    "without the start of an answer");
  command->add_flag("--continue-final-message", flags->continue_final_message,
                    "end inside of the last message");
  auto* ids = command->add_flag("--token-ids", flags->token_ids, "print the prompt's token ids");
  command->add_flag("--parts", flags->marks, "print which parts came from the messages")
      ->excludes(ids);
  command->footer(
      "The ids are comma-separated, as `tandem generate --token-ids` takes them.\n"
      "Example:\n"
      "  echo '[{\"role\": \"user\", \"content\": \"It was a fine morning\"}]' |\n"
      "    tandem chat-template --model models/sample");
  command->callback([flags, &chosen] {
    chosen = [flags] {
      const absl::Status status = PrintPrompt(*flags);
      return status.ok() ? kExitOk : PrintError(status);
    };
  });
}

}  // namespace tandem
