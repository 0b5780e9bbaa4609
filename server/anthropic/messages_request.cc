#include "server/anthropic/messages_request.h"

#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/status.h"
#include "server/openai/api_error.h"
#include "server/openai/api_fields.h"
#include "server/openai/body_fields.h"
#include "server/openai/common_fields.h"
#include "server/openai/message_list.h"
#include "server/openai/turn.h"

namespace tandem::anthropic {
namespace {

using openai::BodyFields;
using openai::ForEach;
using openai::Json;
using openai::MessageList;
using openai::ReadRequired;
using openai::WithParam;

constexpr std::string_view kText[] = {"text"};

constexpr openai::RefusedField kRefusedInMessages[] = {
    {"mcp_servers", "no tools are run here"},
    {"container", "no tools are run here"},
    {"context_management", "messages are taken as they are"},
};

constexpr openai::ToolForm kTools = {.type = "custom",
                                     .default_type = "custom",
                                     .parameters = "input_schema",
                                     .describe = "name and input_schema"};

// Adds one content block of a message of `role` to the messages.
absl::Status AddBlock(const Json& json, const std::string& path, std::string_view role,
                      MessageList& messages) {
  ASSIGN_OR_RETURN(const BodyFields block, BodyFields::Of(json, path));
  std::string type;
  RETURN_IF_ERROR(ReadRequired(block, "type", type));
  if (type == "text") {
    std::string text;
    RETURN_IF_ERROR(ReadRequired(block, "text", text));
    messages.AddTexts(role, {std::move(text)});
    return absl::OkStatus();
  }
  if (type == "thinking" && role == "assistant") {
    std::string thinking;
    RETURN_IF_ERROR(ReadRequired(block, "thinking", thinking));
    messages.AddReasoning(std::move(thinking));
    return absl::OkStatus();
  }
  // Encrypted reasoning has no text that a chat template could print, so it is dropped.
  if (type == "redacted_thinking" && role == "assistant") return absl::OkStatus();
  if (type == "tool_use" && role == "assistant") {
    std::string id;
    std::string name;
    RETURN_IF_ERROR(ReadRequired(block, "id", id));
    RETURN_IF_ERROR(ReadRequired(block, "name", name));
    ASSIGN_OR_RETURN(const std::optional<BodyFields> input, block.Object("input"));
    messages.AddCall(std::move(id), std::move(name), input ? JsonText(input->json()) : "{}");
    return absl::OkStatus();
  }
  if (type == "tool_result" && role == "user") {
    std::string id;
    RETURN_IF_ERROR(ReadRequired(block, "tool_use_id", id));
    std::vector<std::string> texts;
    if (const Json* content = block.Find("content")) {
      ASSIGN_OR_RETURN(texts, openai::TextsOf(*content, block.PathOf("content"), kText));
    }
    messages.AddResult(std::move(id), std::move(texts));
    return absl::OkStatus();
  }
  return WithParam(Unimplemented("{}.type={} is not supported in a message of the role {}: blocks "
                                 "are text, thinking, tool_use and tool_result",
                                 path, JsonString(type.substr(0, 40)), role),
                   "messages");
}

absl::Status AddMessage(const Json& json, const std::string& path, MessageList& messages) {
  ASSIGN_OR_RETURN(const BodyFields message, BodyFields::Of(json, path));
  std::string role;
  RETURN_IF_ERROR(ReadRequired(message, "role", role));
  if (role != "user" && role != "assistant" && role != "system") {
    return WithParam(InvalidArgument("{}.role={} is unknown: use \"user\" or \"assistant\"", path,
                                     JsonString(role.substr(0, 40))),
                     "messages");
  }
  RETURN_IF_ERROR(openai::Require(message, "content"));
  const Json& content = *message.Find("content");
  if (content.is_string()) {
    messages.AddTexts(role, {content.get_ref<const std::string&>()});
    return absl::OkStatus();
  }
  return ForEach(content, message.PathOf("content"), [&](const Json& block, const std::string& at) {
    return AddBlock(block, at, role, messages);
  });
}

// Sets the field "messages" and, where the model is to continue its own last message, the fields
// that ask for that.
absl::Status ReadConversation(const BodyFields& body, Json& chat) {
  MessageList messages;
  if (const Json* system = body.Find("system")) {
    ASSIGN_OR_RETURN(std::vector<std::string> texts, openai::TextsOf(*system, "system", kText));
    if (!texts.empty()) messages.AddMessage("system", std::move(texts));
  }
  RETURN_IF_ERROR(openai::Require(body, "messages"));
  const Json& given = *body.Find("messages");
  RETURN_IF_ERROR(ForEach(given, "messages", [&](const Json& message, const std::string& path) {
    return AddMessage(message, path, messages);
  }));
  if (given.empty()) {
    return WithParam(InvalidArgument("messages is an empty list: give at least one message"),
                     "messages");
  }
  if (messages.EndsWithAssistantText()) {
    chat["continue_final_message"] = true;
    chat["add_generation_prompt"] = false;
  }
  chat["messages"] = messages.Take();
  return absl::OkStatus();
}

// Sets "tool_choice" and "parallel_tool_calls".
absl::Status ReadToolChoice(const BodyFields& body, Json& chat) {
  ASSIGN_OR_RETURN(const std::optional<BodyFields> choice, body.Object("tool_choice"));
  chat["tool_choice"] = nullptr;
  if (!choice) return absl::OkStatus();
  std::string type;
  RETURN_IF_ERROR(ReadRequired(*choice, "type", type));
  if (type == "tool") {
    std::string name;
    RETURN_IF_ERROR(ReadRequired(*choice, "name", name));
    Json& named = chat["tool_choice"];
    named["type"] = "function";
    named["function"]["name"] = name;
  } else if (type == "any") {
    chat["tool_choice"] = "required";
  } else if (type != "auto" && type != "none") {
    return WithParam(InvalidArgument("tool_choice.type={} is unknown: use \"auto\", \"any\", "
                                     "\"tool\" or \"none\"",
                                     JsonString(type.substr(0, 40))),
                     "tool_choice");
  } else if (!chat["tools"].is_null()) {
    chat["tool_choice"] = type;
  }
  bool alone = false;
  RETURN_IF_ERROR(choice->Read("disable_parallel_tool_use", alone));
  if (alone) chat["parallel_tool_calls"] = false;
  return absl::OkStatus();
}

// Reads "thinking". Whether the model reasons before it answers is a variable of its chat template.
absl::Status ReadThinking(const BodyFields& body, Json& chat) {
  ASSIGN_OR_RETURN(const std::optional<BodyFields> thinking, body.Object("thinking"));
  if (!thinking) return absl::OkStatus();
  std::string type;
  RETURN_IF_ERROR(ReadRequired(*thinking, "type", type));
  if (type == "enabled" || type == "disabled") {
    return openai::SetVariable(body, "enable_thinking", type == "enabled", chat);
  }
  if (type == "adaptive" || type == "between_tools") return absl::OkStatus();  // the model decides
  return WithParam(InvalidArgument("thinking.type={} is unknown: use \"enabled\" or \"disabled\"",
                                   JsonString(type.substr(0, 40))),
                   "thinking");
}

// Reads the fields that chat completions have under another name.
absl::Status ReadRenamed(const BodyFields& body, MaxTokens max_tokens, Json& chat) {
  if (max_tokens == MaxTokens::kRequired) RETURN_IF_ERROR(openai::Require(body, "max_tokens"));
  std::optional<int32_t> limit;
  RETURN_IF_ERROR(body.Read("max_tokens", limit));
  if (limit) chat["max_completion_tokens"] = *limit;
  std::vector<std::string> stops;
  RETURN_IF_ERROR(body.Read("stop_sequences", stops));
  if (!stops.empty()) chat["stop"] = stops;
  ASSIGN_OR_RETURN(const std::optional<BodyFields> metadata, body.Object("metadata"));
  std::string user;
  if (metadata) RETURN_IF_ERROR(metadata->Read("user_id", user));
  if (!user.empty()) chat["user"] = user;
  return absl::OkStatus();
}

// Reads the form of the answer from output_config, or from the older field output_format.
absl::Status ReadOutputConfig(const BodyFields& body, Json& chat) {
  ASSIGN_OR_RETURN(std::optional<BodyFields> format, body.Object("output_format"));
  ASSIGN_OR_RETURN(const std::optional<BodyFields> output, body.Object("output_config"));
  if (output) {
    std::string effort;
    RETURN_IF_ERROR(output->Read("effort", effort));
    if (!effort.empty()) chat["reasoning_effort"] = effort;
    if (output->Find("format") != nullptr) {
      ASSIGN_OR_RETURN(format, output->Object("format"));
    }
  }
  if (!format) return absl::OkStatus();
  Json& form = chat["response_format"];
  RETURN_IF_ERROR(openai::Require(*format, "type"));
  form["type"] = *format->Find("type");
  form["json_schema"] = format->json();
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<openai::ChatRequest> ParseMessages(Json json, MaxTokens max_tokens) {
  ASSIGN_OR_RETURN(const BodyFields body, BodyFields::Of(json, ""));
  RETURN_IF_ERROR(RefuseFields(body, kRefusedInMessages));
  Json chat;  // the body in the form of a chat completion
  RETURN_IF_ERROR(ReadConversation(body, chat));
  ASSIGN_OR_RETURN(chat["tools"], openai::ToolsOf(body, kTools));
  RETURN_IF_ERROR(ReadToolChoice(body, chat));
  RETURN_IF_ERROR(ReadThinking(body, chat));
  RETURN_IF_ERROR(ReadRenamed(body, max_tokens, chat));
  RETURN_IF_ERROR(ReadOutputConfig(body, chat));
  // All other fields have the same names in chat completions.
  for (auto& [name, value] : chat.items()) json[name] = std::move(value);
  ASSIGN_OR_RETURN(openai::ChatRequest request, openai::ParseChat(std::move(json)));
  RETURN_IF_ERROR(CheckTurn(request));
  return request;
}

}  // namespace tandem::anthropic
