#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"

namespace tandem::terminal {

// The messages of a chat, as OpenAI's API writes them. A turn is a question and all that follows it
// up to the next one. A value; not thread-safe.
class Conversation {
 public:
  using Json = nlohmann::ordered_json;

  // Parses a chat: a list of messages, or an object with "messages". A first message of the role
  // "system" becomes the system text. INVALID_ARGUMENT says what is wrong.
  static absl::StatusOr<Conversation> Parse(std::string_view json);

  const std::string& system() const { return system_; }
  void set_system(std::string text) { system_ = std::move(text); }

  void Ask(std::string question);
  // Adds the message of the assistant that answers the last question.
  void Answer(Json message);
  // Removes the last question with its answers and returns it. There must be one.
  std::string TakeBack();
  // Forgets the oldest turn. Returns false, without an effect, where only one turn is left.
  bool DropOldest();
  // Forgets all turns; the system text stays.
  void Clear() { messages_.clear(); }

  size_t num_turns() const;
  // Whether the last question has no answer.
  bool is_unanswered() const;
  // The list of messages that a request has, the system text first.
  Json Messages() const;
  // Messages() as a text for a file.
  std::string ToText() const;

 private:
  std::string system_;  // empty: none
  std::vector<Json> messages_;
};

}  // namespace tandem::terminal
