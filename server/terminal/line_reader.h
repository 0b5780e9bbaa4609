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
  // With kInterrupted: whether text had been typed before Ctrl-C, which was thrown away. Never set
  // by a reader that cannot see text before its line is complete.
  bool had_text = false;
};

// A source of lines of input. Not thread-safe.
class LineReader {
 public:
  virtual ~LineReader() = default;
  // Waits for a line. Where a person types, `prompt` stands before it.
  virtual InputLine Read(std::string_view prompt) = 0;
  // Adds a text to the history that a person can recall by the arrow keys, where the reader has
  // one.
  virtual void Remember(std::string_view) {}
};

// A reader for pipes and files: lines of standard input, without a prompt. A longer line than 16
// MiB is split after that many bytes.
std::unique_ptr<LineReader> NewPipeReader();

// A reader for a terminal. Lines can be edited where this build has libedit. Both arguments outlive
// the reader.
std::unique_ptr<LineReader> NewTerminalReader(Wakeup& wakeup, TerminalSignals& signals);

}  // namespace tandem::terminal
