#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/openai/json_body.h"

namespace tandem::openai {

// Builds the messages of a chat, in the form that chat templates take, from the items and content
// blocks of other APIs. Consecutive texts, reasoning and calls of the assistant become one message.
class MessageList {
 public:
  // Adds a message that does not extend an earlier one.
  void AddMessage(std::string_view role, std::vector<std::string> texts);
  // Adds texts to the last message if it has that role, else as a new message.
  void AddTexts(std::string_view role, std::vector<std::string> texts);
  // Adds reasoning of the assistant; the texts and calls of the same turn follow.
  void AddReasoning(std::string text);
  void AddCall(std::string id, std::string name, std::string arguments);
  void AddResult(std::string call_id, std::vector<std::string> texts);

  // Whether the last message is a text of the assistant, which the model is then to continue.
  bool EndsWithAssistantText() const;
  bool empty() const { return messages_.empty(); }
  // The messages as JSON.
  Json Take();

 private:
  struct Message {
    std::string role;
    std::vector<std::string> texts;
    std::string reasoning;
    Json calls;           // null, or an array
    std::string call_id;  // in a tool's result: the call that it answers

    bool HasNothingButReasoning() const { return texts.empty() && calls.is_null(); }
  };

  bool LastIs(std::string_view role) const;
  Message& Begin(std::string_view role);
  static Json JsonOf(Message message);

  std::vector<Message> messages_;
};

}  // namespace tandem::openai
