#include "model/chat/chat_abilities.h"

#include <string_view>

#include "base/json.h"

namespace tandem {
namespace {

constexpr std::string_view kText = "probe-text";

bool Has(const absl::StatusOr<std::string>& text, std::string_view wanted) {
  return text.ok() && text->find(wanted) != std::string::npos;
}

ChatJson Message(std::string_view role, ChatJson content) {
  ChatJson message = ChatJson::object();
  message["role"] = role;
  message["content"] = std::move(content);
  return message;
}

ChatJson Conversation(std::initializer_list<ChatJson> messages) {
  ChatJson conversation = ChatJson::array();
  for (const ChatJson& message : messages) conversation.push_back(message);
  return conversation;
}

ChatJson SomeTools() {
  return ParseOrderedJson(R"([{"type": "function", "function": {"name": "probe", "description": "",
      "parameters": {"type": "object", "properties": {"key": {"type": "string",
      "description": ""}}, "required": ["key"]}}}])")
      .value;
}

// A conversation in which the assistant calls a tool and the tool answers.
ChatJson ToolConversation(ChatJson content) {
  ChatJson assistant = Message("assistant", std::move(content));
  assistant["tool_calls"] = ParseOrderedJson(R"([{"id": "probe0001", "type": "function",
      "function": {"name": "probe", "arguments": {"probe_key": "probe_value"}}}])")
                                .value;
  ChatJson tool = Message("tool", "probe-answer");
  tool["name"] = "probe";
  tool["tool_call_id"] = "probe0001";
  return Conversation({Message("user", "probe-question"), assistant, tool});
}

std::string ReplaceAll(std::string text, std::string_view old, std::string_view with) {
  for (size_t at = text.find(old); at != std::string::npos; at = text.find(old, at + with.size())) {
    text.replace(at, old.size(), with);
  }
  return text;
}

// Whether the template knows the role "developer". One that treats it like a made-up role does not.
bool KnowsDeveloper(const ChatProbe& render) {
  constexpr std::string_view kUnknown = "probe-role";
  const auto conversation = [](std::string_view role) {
    return Conversation({Message(role, kText), Message("user", "probe-question")});
  };
  const auto developer = render(conversation("developer"), ChatJson());
  if (!Has(developer, kText)) return false;
  const auto unknown = render(conversation(kUnknown), ChatJson());
  return !unknown.ok() || ReplaceAll(*unknown, kUnknown, "developer") != *developer;
}

}  // namespace

ChatAbilities ProbeTemplate(const ChatProbe& render) {
  ChatAbilities abilities;
  abilities.takes_strings = Has(render(Conversation({Message("user", kText)}), ChatJson()), kText);

  ChatJson part = ChatJson::object();
  part["type"] = "text";
  part["text"] = kText;
  ChatJson parts = ChatJson::array();
  parts.push_back(part);
  const auto with_parts = render(Conversation({Message("user", parts)}), ChatJson());
  // A template that knows only strings as content prints the list of parts itself.
  abilities.takes_parts =
      Has(with_parts, kText) && !Has(with_parts, "'type'") && !Has(with_parts, "\"type\"");

  abilities.knows_developer = KnowsDeveloper(render);
  const auto with_null = render(ToolConversation(nullptr), SomeTools());
  abilities.takes_null_content = with_null.ok() && !Has(with_null, "None");
  const auto with_object = render(ToolConversation(""), SomeTools());
  abilities.wants_argument_objects =
      Has(with_object, "probe_key") && !Has(with_object, "'probe_key'");
  return abilities;
}

}  // namespace tandem
