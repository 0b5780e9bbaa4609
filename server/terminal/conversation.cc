#include "server/terminal/conversation.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "base/json.h"
#include "base/status.h"

namespace tandem::terminal {
namespace {

std::string RoleOf(const Conversation::Json& message) {
  const auto role = message.is_object() ? message.find("role") : message.end();
  return role != message.end() && role->is_string() ? role->get<std::string>() : std::string();
}

bool IsQuestion(const Conversation::Json& message) { return RoleOf(message) == "user"; }

// The text of a message. If its content is a list of parts, their texts are joined.
std::string TextOf(const Conversation::Json& message) {
  const auto content = message.find("content");
  if (content == message.end()) return "";
  if (content->is_string()) return content->get<std::string>();
  std::string text;
  if (!content->is_array()) return text;
  for (const Conversation::Json& part : *content) {
    const auto piece = part.is_object() ? part.find("text") : part.end();
    if (piece != part.end() && piece->is_string()) text += piece->get_ref<const std::string&>();
  }
  return text;
}

absl::Status CheckMessage(const Conversation::Json& message, size_t index) {
  const std::string role = RoleOf(message);
  if (role.empty()) {
    return InvalidArgument(
        "message {} has no role: it must be an object such as "
        "{{\"role\": \"user\", \"content\": \"...\"}}",
        index);
  }
  const auto content = message.find("content");
  const bool is_text = content != message.end() && (content->is_string() || content->is_array());
  if (is_text || (role == "assistant" && message.contains("tool_calls"))) return absl::OkStatus();
  return InvalidArgument("message {} of the role {} has no content", index, role);
}

}  // namespace

absl::StatusOr<Conversation> Conversation::Parse(std::string_view text) {
  auto [json, fault] = ParseOrderedJson(text);
  if (fault) {
    return InvalidArgument("it is not JSON: give a list of messages, as /save writes it");
  }
  if (json.is_object() && json.contains("messages")) json = Json(std::move(json["messages"]));
  if (!json.is_array()) {
    return InvalidArgument("it has no messages: give a list of them, as /save writes it");
  }
  Conversation chat;
  for (size_t i = 0; i < json.size(); ++i) {
    RETURN_IF_ERROR(CheckMessage(json[i], i));
    if (i == 0 && RoleOf(json[i]) == "system") {
      chat.system_ = TextOf(json[i]);
    } else {
      chat.messages_.push_back(std::move(json[i]));
    }
  }
  return chat;
}

void Conversation::Ask(std::string question) {
  messages_.push_back({{"role", "user"}, {"content", std::move(question)}});
}

void Conversation::Answer(Json message) { messages_.push_back(std::move(message)); }

std::string Conversation::TakeBack() {
  const auto last = std::find_if(messages_.rbegin(), messages_.rend(), IsQuestion);
  TANDEM_CHECK(last != messages_.rend(), "a question can be taken back only after it was asked");
  std::string question = TextOf(*last);
  messages_.erase(last.base() - 1, messages_.end());
  return question;
}

bool Conversation::DropOldest() {
  if (num_turns() < 2) return false;
  // Messages before the first question, which a loaded file may have, are dropped with its turn.
  const auto first = std::find_if(messages_.begin(), messages_.end(), IsQuestion);
  messages_.erase(messages_.begin(), std::find_if(first + 1, messages_.end(), IsQuestion));
  return true;
}

size_t Conversation::num_turns() const {
  return static_cast<size_t>(std::count_if(messages_.begin(), messages_.end(), IsQuestion));
}

bool Conversation::is_unanswered() const {
  return !messages_.empty() && IsQuestion(messages_.back());
}

Conversation::Json Conversation::Messages() const {
  Json list = Json::array();
  if (!system_.empty()) list.push_back({{"role", "system"}, {"content", system_}});
  for (const Json& message : messages_) list.push_back(message);
  return list;
}

std::string Conversation::ToText() const { return JsonText(Messages(), 1) + "\n"; }

}  // namespace tandem::terminal
