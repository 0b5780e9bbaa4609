// Reads typed lines for builds without libedit; only the terminal's own line editing works.
#include <unistd.h>

#include <cstdio>
#include <utility>

#include "server/terminal/line_reader.h"

namespace tandem::terminal {
namespace {

class TypedReader final : public LineReader {
 public:
  TypedReader(Wakeup& wakeup, TerminalSignals& signals) : wakeup_(wakeup), signals_(signals) {}

  InputLine Read(std::string_view prompt) override {
    std::fwrite(prompt.data(), 1, prompt.size(), stdout);
    std::fflush(stdout);
    while (true) {
      const bool readable = wakeup_.WaitFor(STDIN_FILENO);
      if (signals_.TakeInterrupt()) {
        text_.clear();
        std::fputs("\n", stdout);
        return {InputLine::Kind::kInterrupted, ""};
      }
      if (!readable) continue;
      // The terminal gives a line once it is complete; Ctrl-D after some text gives that text.
      char bytes[4096];
      const ssize_t got = read(STDIN_FILENO, bytes, sizeof(bytes));
      if (got <= 0) {
        std::fputs("\n", stdout);
        return {};
      }
      text_.append(bytes, static_cast<size_t>(got));
      const size_t end = text_.find('\n');
      if (end == std::string::npos) continue;
      std::string line = text_.substr(0, end);
      text_.erase(0, end + 1);
      return {InputLine::Kind::kText, std::move(line)};
    }
  }

 private:
  Wakeup& wakeup_;
  TerminalSignals& signals_;
  std::string text_;
};

}  // namespace

std::unique_ptr<LineReader> NewTerminalReader(Wakeup& wakeup, TerminalSignals& signals) {
  return std::make_unique<TypedReader>(wakeup, signals);
}

}  // namespace tandem::terminal
