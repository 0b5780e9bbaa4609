#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "absl/status/status.h"
#include "server/terminal/chat_answer.h"
#include "server/terminal/terminal_text.h"

namespace tandem::terminal {

// The reader of what is printed: a person at a terminal, with or without colours, or a program,
// which gets the answers alone on stdout.
enum class Audience : uint8_t { kColourTerminal, kPlainTerminal, kProgram };

// The audience of this process, by its stdin, its stdout and the environment (NO_COLOR, TERM).
Audience AudienceOfThisProcess();

// Prints a chat. What came from a server is made harmless (TerminalText). Not thread-safe.
class Screen {
 public:
  // Who gets notes: people only, or programs as well, on stderr.
  enum class Notes : uint8_t { kPeopleOnly, kAll };
  Screen(Audience audience, Notes notes) : audience_(audience), notes_(notes) {}

  bool is_interactive() const { return audience_ != Audience::kProgram; }
  // How many characters fit into a line; a usual number where there is no terminal.
  int columns() const;

  // Prints the output of a command.
  void Print(std::string_view text);
  // A line beside the chat, dim where there are colours.
  void Note(std::string_view text);
  void Error(const absl::Status& status);

  // The next piece of an answer. Reasoning is dim, and only for people.
  void Piece(const AnswerPiece& piece);
  // Ends the line and the colours of an answer, which may have been empty.
  void EndAnswer();

 private:
  void Write(std::string_view text);
  void BeginKind(PieceKind kind);
  void EndKind();

  const Audience audience_;
  const Notes notes_;
  TerminalText filter_;
  std::optional<PieceKind> kind_;  // the kind of the last piece within an answer
  bool at_line_start_ = true;
};

}  // namespace tandem::terminal
