#pragma once

#include <string>
#include <string_view>

namespace tandem::terminal {

// Makes untrusted text, such as a model's, safe to print: whatever could control a terminal becomes
// a visible character. Line feeds and tabs stay; a carriage return before a line feed is dropped.
// Other control characters become Unicode's pictures of them, from U+2400 on; C1 control characters
// and ill-formed bytes become U+FFFD. Not thread-safe.
class TerminalText {
 public:
  // The next bytes, cut anywhere. A character whose end has not come yet is held back, so that what
  // is returned is always whole.
  std::string Feed(std::string_view bytes);
  // Returns what was held back, at the end of the text.
  std::string Finish();

 private:
  std::string held_;
};

// Makes a complete text safe to print, as TerminalText does with a stream.
std::string Printable(std::string_view text);

}  // namespace tandem::terminal
