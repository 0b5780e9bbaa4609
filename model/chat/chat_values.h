#pragma once

#include <cstddef>
#include <string>

#include "absl/status/statusor.h"
#include "model/chat/chat_json.h"
#include "model/chat/jinja/value.h"

namespace tandem {

// Turns JSON from a request into values for a template. All their texts are marked as input, except
// for the roles of messages that every model knows, because some templates build control tokens of
// them. Counts what it converts.
class ChatValues {
 public:
  // Converts one JSON value. INVALID_ARGUMENT when it is nested too deeply.
  absl::StatusOr<jinja::Value> Convert(const ChatJson& json);
  absl::StatusOr<jinja::Value> ConvertMessages(const ChatJson& messages);

  size_t nodes() const { return nodes_; }
  size_t bytes() const { return bytes_; }

 private:
  absl::StatusOr<jinja::Value> ConvertAt(const ChatJson& json, int depth);
  absl::StatusOr<jinja::Value> ConvertObject(const ChatJson& json, int depth, bool is_message);
  jinja::Value Input(const std::string& text);

  size_t nodes_ = 0;
  size_t bytes_ = 0;
};

}  // namespace tandem
