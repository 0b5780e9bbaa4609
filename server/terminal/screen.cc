#include "server/terminal/screen.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "fmt/format.h"

namespace tandem::terminal {
namespace {

constexpr std::string_view kDim = "\033[2m";
constexpr std::string_view kPlain = "\033[0m";
constexpr std::string_view kRed = "\033[31m";

bool IsSet(const char* variable) {
  const char* value = std::getenv(variable);
  return value != nullptr && *value != '\0';
}

void PrintTo(FILE* file, std::string_view text) {
  std::fwrite(text.data(), 1, text.size(), file);
  std::fflush(file);
}

}  // namespace

Audience AudienceOfThisProcess() {
  if (isatty(STDIN_FILENO) == 0 || isatty(STDOUT_FILENO) == 0) return Audience::kProgram;
  const char* terminal = std::getenv("TERM");
  const bool dumb = terminal == nullptr || std::string_view(terminal) == "dumb";
  return dumb || IsSet("NO_COLOR") ? Audience::kPlainTerminal : Audience::kColourTerminal;
}

int Screen::columns() const {
  constexpr int kUsual = 100;
  constexpr int kMost = 200;
  winsize size{};
  if (ioctl(STDOUT_FILENO, TIOCGWINSZ, &size) != 0 || size.ws_col == 0) return kUsual;
  return std::min<int>(size.ws_col, kMost);
}

void Screen::Print(std::string_view text) { PrintTo(stdout, Printable(text) + "\n"); }

void Screen::Note(std::string_view text) {
  if (!is_interactive() && notes_ == Notes::kPeopleOnly) return;
  const std::string safe = Printable(text);
  if (!is_interactive()) return PrintTo(stderr, safe + "\n");
  if (audience_ == Audience::kPlainTerminal) return PrintTo(stdout, safe + "\n");
  PrintTo(stdout, fmt::format("{}{}{}\n", kDim, safe, kPlain));
}

void Screen::Error(const absl::Status& status) {
  const std::string safe =
      Printable(std::string_view(status.message().data(), status.message().size()));
  if (!is_interactive()) {
    return PrintTo(stderr,
                   fmt::format("error: {}: {}\n", absl::StatusCodeToString(status.code()), safe));
  }
  if (audience_ == Audience::kPlainTerminal) return PrintTo(stdout, "error: " + safe + "\n");
  PrintTo(stdout, fmt::format("{}error:{} {}\n", kRed, kPlain, safe));
}

void Screen::Write(std::string_view text) {
  if (text.empty()) return;
  at_line_start_ = text.back() == '\n';
  PrintTo(stdout, text);
}

void Screen::Piece(const AnswerPiece& piece) {
  if (piece.kind == PieceKind::kReasoning && !is_interactive()) return;
  if (kind_ != piece.kind) {
    if (kind_) EndKind();
    BeginKind(piece.kind);
  }
  Write(filter_.Feed(piece.text));
}

void Screen::BeginKind(PieceKind kind) {
  kind_ = kind;
  if (kind != PieceKind::kReasoning) return;
  PrintTo(stdout, audience_ == Audience::kColourTerminal ? kDim : "[reasoning]\n");
}

void Screen::EndKind() {
  Write(filter_.Finish());
  if (kind_ == PieceKind::kReasoning) {
    PrintTo(stdout, audience_ == Audience::kColourTerminal ? kPlain : "\n[answer]");
    at_line_start_ = false;
  }
  if (!at_line_start_) Write("\n");
  kind_.reset();
}

void Screen::EndAnswer() {
  if (kind_) EndKind();
  at_line_start_ = true;
}

}  // namespace tandem::terminal
