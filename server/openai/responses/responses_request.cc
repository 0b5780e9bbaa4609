#include "server/openai/responses/responses_request.h"

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "server/openai/api_fields.h"
#include "server/openai/body_fields.h"
#include "server/openai/common_fields.h"
#include "server/openai/message_list.h"
#include "server/openai/turn.h"

namespace tandem::openai {
namespace {

constexpr char kNotKept[] = "answers are not kept here: send the whole conversation as input";

constexpr RefusedField kRefusedInResponses[] = {
    {"previous_response_id", kNotKept},
    {"conversation", kNotKept},
    {"background", kNotKept},
    {"prompt", "templates of prompts are not kept here: send input"},
    {"context_management", "inputs are taken as they are"},
    {"moderation", "texts are not judged here"},
    {"top_logprobs", "use /v1/chat/completions for log-probabilities"},
};

constexpr std::array<FieldName, 4> kNames = {{{"max_tokens", "max_output_tokens"},
                                              {"max_completion_tokens", "max_output_tokens"},
                                              {"messages", "input"},
                                              {"response_format", "text.format"}}};

constexpr ToolForm kTools = {
    .type = "function", .default_type = "", .parameters = "parameters", .describe = "\"function\""};

// The limits that OpenAI documents for metadata: entries, and bytes of a key and of a value.
constexpr size_t kMaxMetadata = 16;
constexpr size_t kMaxMetadataKey = 64;
constexpr size_t kMaxMetadataValue = 512;

// The largest size of what a response repeats of its request: it is kept until the answer ends, and
// a stream sends it three times.
constexpr size_t kMaxEchoBytes = size_t{1} << 20;

absl::Status CheckMetadata(const BodyFields& body) {
  ASSIGN_OR_RETURN(const std::optional<BodyFields> metadata, body.Object("metadata"));
  if (!metadata) return absl::OkStatus();
  if (metadata->json().size() > kMaxMetadata) {
    return WithParam(InvalidArgument("metadata has {} fields; at most {} are taken",
                                     metadata->json().size(), kMaxMetadata),
                     "metadata");
  }
  for (const auto& [key, value] : metadata->json().items()) {
    std::string text;
    RETURN_IF_ERROR(metadata->Read(key, text));
    if (key.size() <= kMaxMetadataKey && text.size() <= kMaxMetadataValue) continue;
    return WithParam(
        InvalidArgument("metadata has a name of {} and a value of {} bytes; at most {} "
                        "and {} are taken",
                        key.size(), text.size(), kMaxMetadataKey, kMaxMetadataValue),
        "metadata");
  }
  return absl::OkStatus();
}

absl::Status CheckState(const BodyFields& body) {
  RETURN_IF_ERROR(RefuseFields(body, kRefusedInResponses));
  bool store = false;
  RETURN_IF_ERROR(body.Read("store", store));
  if (store) {
    return WithParam(Unimplemented("store=true is not supported: answers are not kept here; leave "
                                   "it out or send false"),
                     "store");
  }
  std::vector<std::string> include;
  RETURN_IF_ERROR(body.Read("include", include));
  for (const std::string& what : include) {
    if (what != "message.output_text.logprobs") continue;
    return WithParam(Unimplemented("include has {}: use /v1/chat/completions for log-probabilities",
                                   JsonString(what)),
                     "include");
  }
  return CheckMetadata(body);
}

absl::Status AddMessageItem(const BodyFields& item, const std::string& path,
                            MessageList& messages) {
  static constexpr std::string_view kTypes[] = {"input_text", "output_text", "text", "refusal"};
  std::string role;
  RETURN_IF_ERROR(ReadRequired(item, "role", role));
  if (role != "user" && role != "assistant" && role != "system" && role != "developer") {
    return WithParam(InvalidArgument("{}.role={} is unknown: use \"user\", \"assistant\", "
                                     "\"system\" or \"developer\"",
                                     path, JsonString(role.substr(0, 40))),
                     path);
  }
  RETURN_IF_ERROR(Require(item, "content"));
  ASSIGN_OR_RETURN(std::vector<std::string> texts,
                   TextsOf(*item.Find("content"), item.PathOf("content"), kTypes));
  messages.AddMessage(role, std::move(texts));
  return absl::OkStatus();
}

absl::Status AddCallItem(const BodyFields& item, MessageList& messages) {
  std::string id;
  std::string name;
  std::string arguments;
  RETURN_IF_ERROR(ReadRequired(item, "call_id", id));
  RETURN_IF_ERROR(ReadRequired(item, "name", name));
  RETURN_IF_ERROR(ReadRequired(item, "arguments", arguments));
  messages.AddCall(std::move(id), std::move(name), std::move(arguments));
  return absl::OkStatus();
}

absl::Status AddResultItem(const BodyFields& item, MessageList& messages) {
  static constexpr std::string_view kTypes[] = {"input_text", "output_text", "text"};
  std::string id;
  RETURN_IF_ERROR(ReadRequired(item, "call_id", id));
  RETURN_IF_ERROR(Require(item, "output"));
  ASSIGN_OR_RETURN(std::vector<std::string> texts,
                   TextsOf(*item.Find("output"), item.PathOf("output"), kTypes));
  messages.AddResult(std::move(id), std::move(texts));
  return absl::OkStatus();
}

// Adds the content of a reasoning item, where this server writes it. Summaries and encrypted
// reasoning are ignored: they come from other servers, whose models have other templates.
absl::Status AddReasoningItem(const BodyFields& item, MessageList& messages) {
  static constexpr std::string_view kTypes[] = {"reasoning_text", "text"};
  const Json* content = item.Find("content");
  if (content == nullptr) return absl::OkStatus();
  ASSIGN_OR_RETURN(const std::vector<std::string> texts,
                   TextsOf(*content, item.PathOf("content"), kTypes));
  for (const std::string& text : texts) messages.AddReasoning(text);
  return absl::OkStatus();
}

absl::Status AddItem(const Json& json, const std::string& path, MessageList& messages) {
  ASSIGN_OR_RETURN(const BodyFields item, BodyFields::Of(json, path));
  std::string type = "message";
  RETURN_IF_ERROR(item.Read("type", type));
  if (type == "message") return AddMessageItem(item, path, messages);
  if (type == "function_call") return AddCallItem(item, messages);
  if (type == "function_call_output") return AddResultItem(item, messages);
  if (type == "reasoning") return AddReasoningItem(item, messages);
  if (type == "item_reference") {
    return WithParam(
        Unimplemented("{}.type=\"item_reference\" is not supported: {}", path, kNotKept), "input");
  }
  return WithParam(Unimplemented("{}.type={} is not supported: items are message, reasoning, "
                                 "function_call and function_call_output",
                                 path, JsonString(type.substr(0, 40))),
                   "input");
}

absl::StatusOr<Json> MessagesOf(const BodyFields& body) {
  MessageList messages;
  std::optional<std::string> instructions;
  RETURN_IF_ERROR(body.Read("instructions", instructions));
  if (instructions) messages.AddMessage("system", {*instructions});
  RETURN_IF_ERROR(Require(body, "input"));
  const Json& input = *body.Find("input");
  if (input.is_string()) {
    messages.AddMessage("user", {input.get_ref<const std::string&>()});
    return messages.Take();
  }
  if (!input.is_array() || input.empty()) {
    return WithParam(InvalidArgument("input must be a string or a list of at least one item; it is "
                                     "{}",
                                     input.is_array() ? "an empty list" : KindOf(input)),
                     "input");
  }
  RETURN_IF_ERROR(ForEach(input, "input", [&](const Json& item, const std::string& path) {
    return AddItem(item, path, messages);
  }));
  return messages.Take();
}

// "tool_choice" in the form of chat completions; null where there is none.
absl::StatusOr<Json> ToolChoiceOf(const BodyFields& body, bool has_tools) {
  const Json* given = body.Find("tool_choice");
  if (given == nullptr) return nullptr;
  // Clients send these values by default, also without tools; then they have no effect.
  if (!has_tools && (*given == "auto" || *given == "none")) return nullptr;
  if (given->is_string()) return *given;
  ASSIGN_OR_RETURN(const BodyFields choice, BodyFields::Of(*given, "tool_choice"));
  std::string type;
  RETURN_IF_ERROR(ReadRequired(choice, "type", type));
  if (type != "function") {
    return WithParam(Unimplemented("tool_choice.type={} is not supported: use \"function\"",
                                   JsonString(type.substr(0, 40))),
                     "tool_choice");
  }
  std::string name;
  RETURN_IF_ERROR(ReadRequired(choice, "name", name));
  Json chat;
  chat["type"] = "function";
  chat["function"]["name"] = name;
  return chat;
}

// Reads `text` and `reasoning`, which chat completions have under other names.
absl::Status ReadForms(const BodyFields& body, Json& chat) {
  ASSIGN_OR_RETURN(const std::optional<BodyFields> text, body.Object("text"));
  if (text) {
    ASSIGN_OR_RETURN(const std::optional<BodyFields> format, text->Object("format"));
    std::string type = "text";
    if (format) RETURN_IF_ERROR(format->Read("type", type));
    if (type != "text") {
      Json& form = chat["response_format"];
      form["type"] = type;
      if (type == "json_schema") form["json_schema"] = format->json();
    }
  }
  ASSIGN_OR_RETURN(const std::optional<BodyFields> reasoning, body.Object("reasoning"));
  if (!reasoning) return absl::OkStatus();
  std::optional<std::string> effort;
  RETURN_IF_ERROR(reasoning->Read("effort", effort));
  if (!effort) return absl::OkStatus();
  chat["reasoning_effort"] = *effort;
  if (*effort != "none") return absl::OkStatus();
  // Templates of models that can answer without reasoning read this variable instead.
  return SetVariable(body, "enable_thinking", false, chat);
}

// The fields of the request that the response repeats. Moves out of `body` those that chat
// completions do not read.
Json EchoOf(Json& body) {
  const auto or_else = [](Json value, Json otherwise) {
    return value.is_null() ? std::move(otherwise) : std::move(value);
  };
  const auto copy = [&body](const char* name) {
    const auto found = body.find(name);
    return found == body.end() ? Json(nullptr) : *found;
  };
  Json echo;
  echo["instructions"] = TakeField(body, "instructions");
  echo["max_output_tokens"] = TakeField(body, "max_output_tokens");
  echo["metadata"] = or_else(TakeField(body, "metadata"), Json::object());
  echo["parallel_tool_calls"] = or_else(copy("parallel_tool_calls"), true);
  echo["reasoning"] =
      or_else(TakeField(body, "reasoning"), {{"effort", nullptr}, {"summary", nullptr}});
  echo["temperature"] = or_else(copy("temperature"), 1.0);
  echo["text"] = or_else(TakeField(body, "text"), {{"format", {{"type", "text"}}}});
  echo["tool_choice"] = or_else(TakeField(body, "tool_choice"), "auto");
  echo["tools"] = or_else(TakeField(body, "tools"), Json::array());
  echo["top_p"] = or_else(copy("top_p"), 1.0);
  echo["user"] = copy("user");
  return echo;
}

}  // namespace

absl::StatusOr<ResponsesRequest> ParseResponses(Json json) {
  ASSIGN_OR_RETURN(const BodyFields body, BodyFields::Of(json, ""));
  RETURN_IF_ERROR(CheckState(body));
  Json chat;  // the body in the form of a chat completion
  ASSIGN_OR_RETURN(chat["messages"], MessagesOf(body));
  ASSIGN_OR_RETURN(chat["tools"], ToolsOf(body, kTools));
  ASSIGN_OR_RETURN(chat["tool_choice"], ToolChoiceOf(body, !chat["tools"].is_null()));
  RETURN_IF_ERROR(ReadForms(body, chat));
  std::optional<int32_t> max_output_tokens;
  RETURN_IF_ERROR(body.Read("max_output_tokens", max_output_tokens));
  if (max_output_tokens) chat["max_completion_tokens"] = *max_output_tokens;
  ResponsesRequest request;
  request.echo = EchoOf(json);
  if (const size_t bytes = JsonText(request.echo).size(); bytes > kMaxEchoBytes) {
    return InvalidArgument(
        "instructions, tools and what else a response repeats have {} bytes; at "
        "most {} are taken: put long texts into input",
        bytes, kMaxEchoBytes);
  }
  // All other fields have the same names in chat completions.
  json.erase("input");
  json.erase("stream_options");
  for (auto& [name, value] : chat.items()) json[name] = std::move(value);
  ASSIGN_OR_RETURN(request.chat, ParseChat(std::move(json)));
  RETURN_IF_ERROR(CheckTurn(request.chat));
  return request;
}

void RenameForResponses(ApiError& error) { RenameFields(kNames, error); }

}  // namespace tandem::openai
