#include "model/chat/chat_messages.h"

#include "base/status.h"

namespace tandem {
namespace {

bool IsTextType(const ChatJson& type) {
  return type == "text" || type == "input_text" || type == "output_text";
}

absl::Status CheckPart(const ChatJson& part, size_t message, size_t index) {
  if (part.is_string()) return absl::OkStatus();
  const std::string where = fmt::format("messages[{}].content[{}]", message, index);
  if (!part.is_object() || !part.contains("type") || !part["type"].is_string()) {
    return InvalidArgument("{}: expected an object with a type", where);
  }
  if (!IsTextType(part["type"])) {
    return InvalidArgument("{}: content of type '{}' is not supported; supported: text", where,
                           part["type"].get<std::string>());
  }
  if (!part.contains("text") || !part["text"].is_string()) {
    return InvalidArgument("{}.text: expected a string", where);
  }
  return absl::OkStatus();
}

absl::Status CheckMessage(const ChatJson& message, size_t index) {
  if (!message.is_object()) return InvalidArgument("messages[{}]: expected an object", index);
  if (!message.contains("role") || !message["role"].is_string()) {
    return InvalidArgument("messages[{}].role: expected a string", index);
  }
  const auto content = message.find("content");
  if (content == message.end() || content->is_null() || content->is_string()) {
    return absl::OkStatus();
  }
  if (!content->is_array()) {
    return InvalidArgument("messages[{}].content: expected a string or an array of parts", index);
  }
  for (size_t i = 0; i < content->size(); ++i) {
    RETURN_IF_ERROR(CheckPart((*content)[i], index, i));
  }
  return absl::OkStatus();
}

ChatJson TextPartOf(ChatJson text) {
  ChatJson part = ChatJson::object();
  part["type"] = "text";
  part["text"] = std::move(text);
  return part;
}

// Joins the text parts of a message, with line breaks between them.
ChatJson JoinContent(const ChatJson& parts) {
  std::string text;
  for (const ChatJson& part : parts) {
    if (&part != &parts.front()) text += '\n';
    text += part["text"].get_ref<const std::string&>();
  }
  return text;
}

void AdaptContent(ChatJson& message, const ChatAbilities& abilities) {
  const auto at = message.find("content");
  if (at == message.end() || at->is_null()) {
    if (!abilities.takes_null_content) message["content"] = "";
    return;
  }
  ChatJson& content = *at;
  if (content.is_string()) {
    if (!abilities.takes_strings && abilities.takes_parts) {
      ChatJson parts = ChatJson::array();
      parts.push_back(TextPartOf(std::move(content)));
      content = std::move(parts);
    }
    return;
  }
  for (ChatJson& part : content) {
    if (part.is_string()) {
      part = TextPartOf(std::move(part));
    } else {
      part["type"] = "text";
    }
  }
  if (!abilities.takes_parts) content = JoinContent(content);
}

// Turns the arguments of tool calls into objects. OpenAI's API has them as JSON in a string, and
// most templates print them as objects.
absl::Status AdaptToolCalls(ChatJson& message) {
  const auto calls = message.find("tool_calls");
  if (calls == message.end() || !calls->is_array()) return absl::OkStatus();
  for (ChatJson& call : *calls) {
    if (!call.is_object()) continue;
    const auto function = call.find("function");
    if (function == call.end() || !function->is_object()) continue;
    const auto arguments = function->find("arguments");
    if (arguments == function->end() || !arguments->is_string()) continue;
    const auto& text = arguments->get_ref<const std::string&>();
    ChatJson parsed = ChatJson::object();
    if (!text.empty()) {
      ASSIGN_OR_RETURN(parsed, ParseChatJson(text));
    }
    if (parsed.is_object()) *arguments = std::move(parsed);
  }
  return absl::OkStatus();
}

// Copies a message's reasoning, which clients give under one of three names, to the names that
// templates read.
void NameReasoning(ChatJson& message) {
  for (const char* name : {"reasoning_content", "thinking", "reasoning"}) {
    const auto at = message.find(name);
    if (at == message.end() || at->is_null()) continue;
    const ChatJson reasoning = *at;
    if (!message.contains("thinking")) message["thinking"] = reasoning;
    message["reasoning_content"] = reasoning;
    return;
  }
}

}  // namespace

absl::Status CheckMessages(const ChatJson& messages) {
  if (!messages.is_array() || messages.empty()) {
    return InvalidArgument("messages: expected an array of at least one message");
  }
  for (size_t i = 0; i < messages.size(); ++i) RETURN_IF_ERROR(CheckMessage(messages[i], i));
  return absl::OkStatus();
}

absl::StatusOr<ChatJson> AdaptMessages(ChatJson messages, const ChatAbilities& abilities) {
  for (ChatJson& message : messages) {
    if (message["role"] == "developer" && !abilities.knows_developer) message["role"] = "system";
    AdaptContent(message, abilities);
    if (abilities.wants_argument_objects) RETURN_IF_ERROR(AdaptToolCalls(message));
    NameReasoning(message);
  }
  return messages;
}

absl::StatusOr<std::string> AppendToLastContent(ChatJson& messages, std::string_view text) {
  ChatJson& message = messages.back();
  const auto content = message.find("content");
  ChatJson* last = nullptr;
  if (content != message.end() && content->is_string()) last = &*content;
  if (content != message.end() && content->is_array() && !content->empty()) {
    last = &content->back()["text"];
  }
  if (last == nullptr) {
    return InvalidArgument("continue_final_message: the last message has no content to continue");
  }
  std::string before = last->get<std::string>();
  *last = before + std::string(text);
  return before;
}

}  // namespace tandem
