#pragma once

#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "model/chat/chat_json.h"

namespace tandem {

// What a template makes of messages in their different forms, found by rendering small
// conversations (chat_abilities.cc).
struct ChatAbilities {
  bool takes_strings = true;           // {"content": "text"}
  bool takes_parts = false;            // {"content": [{"type": "text", "text": "text"}]}
  bool knows_developer = false;        // the role "developer"
  bool takes_null_content = false;     // "content": null beside tool calls
  bool wants_argument_objects = true;  // arguments of tool calls as objects, not as strings
};

// Checks the messages of a request. INVALID_ARGUMENT names the message and the field.
absl::Status CheckMessages(const ChatJson& messages);

// Gives checked messages the form that the template takes, and fills the fields that different
// templates read reasoning from.
absl::StatusOr<ChatJson> AdaptMessages(ChatJson messages, const ChatAbilities& abilities);

// Appends `text` to the content of the last message. Returns that content as it was before.
// INVALID_ARGUMENT when the message has no content.
absl::StatusOr<std::string> AppendToLastContent(ChatJson& messages, std::string_view text);

}  // namespace tandem
