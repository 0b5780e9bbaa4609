#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

#include "server/terminal/wakeup.h"

namespace tandem::terminal {

struct InputLine {
  enum class Kind : uint8_t { kText, kInterrupted, kEnd };
  Kind kind = Kind::kEnd;
  std::string text;  // without the line feed
  // Ctrl-C came after some text, which was thrown away. Never set where nothing can see what is
  // typed.
  bool had_text = false;
};

// Where lines of input come from. Not thread-safe.
class LineReader {
 public:
  virtual ~LineReader() = default;
  // Waits for a line. Where a person types, `prompt` stands before it.
  virtual InputLine Read(std::string_view prompt) = 0;
  // Lets the person get back to this text by the arrow keys, where there is such a thing.
  virtual void Remember(std::string_view) {}
};

// Lines of standard input as they are, without a prompt, for pipes and files. A line may have 16
// MiB; of a longer one that much is a line.
std::unique_ptr<LineReader> NewPipeReader();

// Lines that somebody types, which can be edited where this build has an editor. Both arguments
// outlive it.
std::unique_ptr<LineReader> NewTerminalReader(Wakeup& wakeup, TerminalSignals& signals);

}  // namespace tandem::terminal
