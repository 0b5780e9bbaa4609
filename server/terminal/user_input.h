#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem::terminal {

// What somebody at the prompt wants.
enum class Verb : uint8_t {
  kSay,  // a message to the model
  kHelp,
  kRoute,
  kExplain,
  kSave,
  kLoad,
  kSystem,
  kTrim,
  kClear,
  kRetry,
  kStats,
  kQuit
};

struct UserInput {
  Verb verb = Verb::kSay;
  std::string text;  // the message, or what follows the command; without spaces around it
};

// Whether a command takes a text.
enum class Argument : uint8_t { kNone, kMay, kMust };

struct CommandInfo {
  Verb verb;
  std::string_view name;      // "/save"
  std::string_view argument;  // "FILE", as the help names it
  Argument takes;
  std::string_view help;
};

// All commands in the order of the help.
std::span<const CommandInfo> Commands();

// A message, or a command where the text begins with a slash; a command may be abbreviated as long
// as one alone begins so. Two slashes begin a message with one. INVALID_ARGUMENT says which
// commands there are.
absl::StatusOr<UserInput> ParseInput(std::string_view text);

// What completes the word `begin` at the prompt: the rest of a command's name and a space. Nothing
// where no command, or several, begin so.
std::optional<std::string> CompletionOf(std::string_view begin);

// Joins lines that end in a backslash to one text.
class LineJoiner {
 public:
  // The whole text once `line`, without its line feed, is its last line.
  std::optional<std::string> Add(std::string_view line);
  // Whether a text has begun and not ended.
  bool is_open() const { return open_; }
  // What has come so far, where the input ends in the middle of a text.
  std::string Take();

 private:
  std::string text_;
  bool open_ = false;
};

}  // namespace tandem::terminal
