#include "server/terminal/terminal_text.h"

#include <utility>

#include "base/utf8.h"

namespace tandem::terminal {
namespace {

constexpr unsigned char kDelete = 0x7f;
constexpr std::string_view kPictureOfDelete = "\u2421";
constexpr std::string_view kReplacement = "\ufffd";

// Unicode's picture of a control character: U+2400 + `control`.
std::string PictureOf(unsigned char control) {
  return {'\xe2', '\x90', static_cast<char>(0x80 + control)};
}

// Whether there is a C1 control character at `at`: U+0080 to U+009F, encoded as C2 80 to C2 9F.
// Some terminals treat them as the escape sequences that they abbreviate.
bool IsC1(std::string_view text, size_t at) {
  return text[at] == '\xc2' && at + 1 < text.size() &&
         static_cast<unsigned char>(text[at + 1]) < 0xa0;
}

// Replaces control characters. `text` must be well-formed UTF-8.
std::string WithoutControls(std::string_view text) {
  std::string safe;
  safe.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    const auto byte = static_cast<unsigned char>(text[i]);
    if (byte == '\r' && i + 1 < text.size() && text[i + 1] == '\n') continue;
    if (byte == kDelete) {
      safe += kPictureOfDelete;
    } else if (byte < 0x20 && byte != '\n' && byte != '\t') {
      safe += PictureOf(byte);
    } else if (IsC1(text, i)) {
      safe += kReplacement;
      ++i;
    } else {
      safe += text[i];
    }
  }
  return safe;
}

}  // namespace

std::string TerminalText::Feed(std::string_view bytes) {
  std::string text = std::exchange(held_, {});
  text += bytes;
  size_t hold = IncompleteUtf8Suffix(text);
  if (hold == 0 && text.ends_with('\r')) hold = 1;  // held back, because a line feed may follow
  held_ = text.substr(text.size() - hold);
  text.resize(text.size() - hold);
  return WithoutControls(ReplaceInvalidUtf8(text));
}

std::string TerminalText::Finish() {
  return WithoutControls(ReplaceInvalidUtf8(std::exchange(held_, {})));
}

std::string Printable(std::string_view text) {
  TerminalText filter;
  std::string safe = filter.Feed(text);
  return safe + filter.Finish();
}

}  // namespace tandem::terminal
