#include "server/openai/message_list.h"

#include <iterator>
#include <utility>

namespace tandem::openai {
namespace {

constexpr char kAssistant[] = "assistant";
constexpr char kTool[] = "tool";

Json ContentOf(std::vector<std::string> texts) {
  if (texts.size() == 1) return std::move(texts.front());
  Json parts = Json::array();
  for (std::string& text : texts) {
    Json part;
    part["type"] = "text";
    part["text"] = std::move(text);
    parts.push_back(std::move(part));
  }
  return parts;
}

void Append(std::vector<std::string> more, std::vector<std::string>& texts) {
  texts.insert(texts.end(), std::make_move_iterator(more.begin()),
               std::make_move_iterator(more.end()));
}

}  // namespace

bool MessageList::LastIs(std::string_view role) const {
  return !messages_.empty() && messages_.back().role == role;
}

MessageList::Message& MessageList::Begin(std::string_view role) {
  // A message of the assistant that holds only reasoning is no turn and is dropped.
  if (LastIs(kAssistant) && messages_.back().HasNothingButReasoning()) messages_.pop_back();
  Message& message = messages_.emplace_back();
  message.role = role;
  return message;
}

void MessageList::AddMessage(std::string_view role, std::vector<std::string> texts) {
  const bool goes_on = role == kAssistant && LastIs(role) && messages_.back().texts.empty();
  Append(std::move(texts), goes_on ? messages_.back().texts : Begin(role).texts);
}

void MessageList::AddTexts(std::string_view role, std::vector<std::string> texts) {
  Append(std::move(texts), LastIs(role) ? messages_.back().texts : Begin(role).texts);
}

void MessageList::AddReasoning(std::string text) {
  const bool goes_on = LastIs(kAssistant) && messages_.back().HasNothingButReasoning();
  Message& message = goes_on ? messages_.back() : Begin(kAssistant);
  message.reasoning += text;
}

void MessageList::AddCall(std::string id, std::string name, std::string arguments) {
  Message& message = LastIs(kAssistant) ? messages_.back() : Begin(kAssistant);
  Json function;
  function["name"] = std::move(name);
  function["arguments"] = std::move(arguments);
  Json call;
  call["id"] = std::move(id);
  call["type"] = "function";
  call["function"] = std::move(function);
  message.calls.push_back(std::move(call));
}

void MessageList::AddResult(std::string call_id, std::vector<std::string> texts) {
  if (texts.empty()) texts.emplace_back();
  Message& message = Begin(kTool);
  message.texts = std::move(texts);
  message.call_id = std::move(call_id);
}

bool MessageList::EndsWithAssistantText() const {
  return LastIs(kAssistant) && !messages_.back().texts.empty() && messages_.back().calls.is_null();
}

Json MessageList::JsonOf(Message message) {
  Json json;
  json["role"] = std::move(message.role);
  json["content"] = message.texts.empty() ? Json(nullptr) : ContentOf(std::move(message.texts));
  if (!message.reasoning.empty()) json["reasoning_content"] = std::move(message.reasoning);
  if (!message.calls.is_null()) json["tool_calls"] = std::move(message.calls);
  if (!message.call_id.empty()) json["tool_call_id"] = std::move(message.call_id);
  return json;
}

Json MessageList::Take() {
  Json json = Json::array();
  for (Message& message : messages_) json.push_back(JsonOf(std::move(message)));
  messages_.clear();
  return json;
}

}  // namespace tandem::openai
