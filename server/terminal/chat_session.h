#pragma once

#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "nlohmann/json.hpp"
#include "server/terminal/chat_connection.h"
#include "server/terminal/chat_totals.h"
#include "server/terminal/conversation.h"
#include "server/terminal/line_reader.h"
#include "server/terminal/screen.h"
#include "server/terminal/user_input.h"

namespace tandem::terminal {

struct ChatOptions {
  std::string model;  // empty: the first that the server has
  std::string route = "auto";
  std::string session_id;
  std::string
      request_prefix;  // what the ids of the requests begin with: letters, digits and hyphens
  Conversation chat;
  bool trim = false;  // forget the oldest turns where a question would not fit the context
  std::optional<int32_t> max_tokens;
  nlohmann::ordered_json fields;  // further fields that each request has
};

// What a session works with; all of it outlives the session.
struct ChatParts {
  ChatConnection& connection;
  Screen& screen;
  LineReader& reader;
  TerminalSignals* signals = nullptr;  // null: Ctrl-C ends the process
};

// One chat at the terminal, from the first prompt to the last. Not thread-safe.
class ChatSession {
 public:
  ChatSession(ChatOptions options, ChatParts parts);

  // Runs until the user leaves or the input ends. An error where no server answers at the start.
  absl::Status Run();
  // Whether a question or a command failed.
  bool any_failed() const { return any_failed_; }

 private:
  enum class Next : uint8_t { kGoOn, kLeave };

  Next OnInterrupt(const InputLine& line);
  Next Do(const std::string& text);
  void Say(std::string text);
  void Retry();
  void SetRoute(const std::string& text);
  void SetSystem(const std::string& text);
  void Trim(const std::string& text);
  void Explain();
  void Save(const std::string& path);
  void Load(const std::string& path);
  void Fail(const absl::Status& status);

  // Asks the server to answer the last question. If no answer comes, returns false and adds nothing
  // to the chat.
  bool AskForAnswer();
  bool TakeAnswer(ChatAnswer& answer, absl::Status status, const SeenTimes& seen);
  void FailAnswer(const absl::Status& status);
  void TrimToFit();
  std::string Body() const;

  ChatOptions options_;
  const ChatParts parts_;
  Conversation chat_;
  ServedModel model_;
  ChatTotals totals_;
  LineJoiner joiner_;
  std::string taken_back_;    // the last question, if it got no answer; empty: none
  std::string last_request_;  // the id of the last request; empty: none
  int64_t requests_ = 0;
  bool leave_at_interrupt_ = false;
  bool any_failed_ = false;
};

}  // namespace tandem::terminal
