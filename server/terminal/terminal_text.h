#pragma once

#include <string>
#include <string_view>

namespace tandem::terminal {

// Makes text that is not trusted, such as a model's, safe to print: whatever could steer a terminal becomes
// a visible character. Line feeds and tabs stay; a carriage return before a line feed is dropped;
// other control characters become Unicode's pictures of them, U+2400 on; those of C1 and ill-formed
// bytes become U+FFFD. Not thread-safe.
class TerminalText {
 public:
  // The next bytes, cut anywhere. A character whose end has not come yet is held back, so that what
  // is returned is always whole.
  std::string Feed(std::string_view bytes);
  // What was held back.
  std::string Finish();

 private:
  std::string held_;
};

// The same for a text that is complete.
std::string Printable(std::string_view text);

}  // namespace tandem::terminal
