#include "server/terminal/user_input.h"

#include <algorithm>
#include <array>
#include <utility>

#include "absl/strings/ascii.h"
#include "base/status.h"
#include "server/terminal/terminal_text.h"

namespace tandem::terminal {
namespace {

constexpr std::array kCommands = {
    CommandInfo{Verb::kHelp, "/help", "", Argument::kNone, "this list"},
    CommandInfo{Verb::kRoute, "/route", "[auto|unified|disaggregated]", Argument::kMay,
                "how requests go from now on; alone: how they go now"},
    CommandInfo{Verb::kExplain, "/explain", "", Argument::kNone,
                "why the last answer went where it went; predicted beside actual times"},
    CommandInfo{Verb::kSystem, "/system", "[TEXT|-]", Argument::kMay,
                "what the model is told before the chat; -: nothing; alone: shows it"},
    CommandInfo{Verb::kRetry, "/retry", "", Argument::kNone, "answer the last question again"},
    CommandInfo{Verb::kTrim, "/trim", "[N]", Argument::kMay,
                "forget the oldest N questions and their answers; default 1"},
    CommandInfo{Verb::kClear, "/clear", "", Argument::kNone,
                "begin a new chat; the system text stays"},
    CommandInfo{Verb::kSave, "/save", "FILE", Argument::kMust,
                "write the chat as JSON messages, for your eyes alone (mode 0600)"},
    CommandInfo{Verb::kLoad, "/load", "FILE", Argument::kMust, "go on with a chat of such a file"},
    CommandInfo{Verb::kStats, "/stats", "", Argument::kNone, "what this session asked and got"},
    CommandInfo{Verb::kQuit, "/quit", "", Argument::kNone, "leave, as Ctrl-D does"},
};

std::string_view Stripped(std::string_view text) {
  while (!text.empty() && absl::ascii_isspace(static_cast<unsigned char>(text.front()))) {
    text.remove_prefix(1);
  }
  while (!text.empty() && absl::ascii_isspace(static_cast<unsigned char>(text.back()))) {
    text.remove_suffix(1);
  }
  return text;
}

// The command with exactly that name, or else all commands whose names begin with `begin`.
std::vector<const CommandInfo*> CommandsLike(std::string_view begin) {
  std::vector<const CommandInfo*> found;
  for (const CommandInfo& command : kCommands) {
    if (command.name == begin) return {&command};
    if (command.name.starts_with(begin)) found.push_back(&command);
  }
  return found;
}

std::string NamesOf(const std::vector<const CommandInfo*>& commands) {
  std::string names;
  for (const CommandInfo* command : commands) {
    if (!names.empty()) names += ", ";
    names += command->name;
  }
  return names;
}

}  // namespace

std::span<const CommandInfo> Commands() { return kCommands; }

absl::StatusOr<UserInput> ParseInput(std::string_view text) {
  text = Stripped(text);
  if (!text.starts_with('/')) return UserInput{.verb = Verb::kSay, .text = std::string(text)};
  if (text.starts_with("//")) {
    return UserInput{.verb = Verb::kSay, .text = std::string(text.substr(1))};
  }
  constexpr std::string_view kSpaces = " \t\n";
  const size_t end = std::min(text.find_first_of(kSpaces), text.size());
  const std::string_view name = text.substr(0, end);
  const std::string_view argument = Stripped(text.substr(end));
  const std::vector<const CommandInfo*> found = CommandsLike(name);
  if (found.empty()) {
    constexpr size_t kMostShown = 40;
    return InvalidArgument(
        "there is no command {}: /help lists them; a message that begins with a slash begins with "
        "two",
        Printable(name.substr(0, kMostShown)));
  }
  if (found.size() > 1) {
    return InvalidArgument("{} may be {}: write more of it", name, NamesOf(found));
  }
  const CommandInfo& command = *found.front();
  if (command.takes == Argument::kNone && !argument.empty()) {
    return InvalidArgument("{} takes nothing after it", command.name);
  }
  if (command.takes == Argument::kMust && argument.empty()) {
    return InvalidArgument("{0} needs something after it: {0} {1}", command.name, command.argument);
  }
  return UserInput{.verb = command.verb, .text = std::string(argument)};
}

std::optional<std::string> CompletionOf(std::string_view begin) {
  if (!begin.starts_with('/')) return std::nullopt;
  const std::vector<const CommandInfo*> found = CommandsLike(begin);
  if (found.size() != 1) return std::nullopt;
  return std::string(found.front()->name.substr(begin.size())) + " ";
}

std::optional<std::string> LineJoiner::Add(std::string_view line) {
  open_ = line.ends_with('\\');
  if (open_) line.remove_suffix(1);
  text_ += line;
  if (!open_) return std::exchange(text_, {});
  text_ += '\n';
  return std::nullopt;
}

std::string LineJoiner::Take() {
  open_ = false;
  return std::exchange(text_, {});
}

}  // namespace tandem::terminal
