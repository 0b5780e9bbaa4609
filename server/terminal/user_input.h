#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem::terminal {

// What the user wants: to send a message, or to run a command.
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

// Whether a command takes an argument.
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

// Parses a line: a command where it begins with a slash, else a message. A command may be
// abbreviated as long as that is unambiguous. Two slashes begin a message that starts with one.
// INVALID_ARGUMENT lists the commands.
absl::StatusOr<UserInput> ParseInput(std::string_view text);

// Completes the word `begin` at the prompt: returns the rest of a command's name and a space.
// Nothing where no command, or more than one, begins with it.
std::optional<std::string> CompletionOf(std::string_view begin);

// Joins lines that end in a backslash to one text.
class LineJoiner {
 public:
  // Adds a line without its line feed. Returns the whole text if this was its last line.
  std::optional<std::string> Add(std::string_view line);
  // Whether a text has begun and not ended.
  bool is_open() const { return open_; }
  // Returns what has come of a text, where the input ends before it is complete.
  std::string Take();

 private:
  std::string text_;
  bool open_ = false;
};

}  // namespace tandem::terminal
