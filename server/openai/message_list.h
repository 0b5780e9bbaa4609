#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "server/openai/json_body.h"

namespace tandem::openai {

// Builds the messages of a chat, in the form that chat templates take, from the items and blocks of
// other APIs. An assistant's texts, reasoning and calls become one message where they belong to one
// turn.
class MessageList {
 public:
  // A message of its own.
  void AddMessage(std::string_view role, std::vector<std::string> texts);
  // Texts of a turn of that role, which goes on if the last message is of it.
  void AddTexts(std::string_view role, std::vector<std::string> texts);
  // The reasoning of an assistant, whose texts and calls follow.
  void AddReasoning(std::string text);
  void AddCall(std::string id, std::string name, std::string arguments);
  void AddResult(std::string call_id, std::vector<std::string> texts);

  // Whether the last message is an assistant's text, which the model is then to go on with.
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
    std::string call_id;  // of a result

    bool HasNothingButReasoning() const { return texts.empty() && calls.is_null(); }
  };

  bool LastIs(std::string_view role) const;
  Message& Begin(std::string_view role);
  static Json JsonOf(Message message);

  std::vector<Message> messages_;
};

}  // namespace tandem::openai
