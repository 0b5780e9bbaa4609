#include <unistd.h>

#include <cerrno>
#include <utility>

#include "server/terminal/line_reader.h"

namespace tandem::terminal {
namespace {

class PipeReader final : public LineReader {
 public:
  InputLine Read(std::string_view) override {
    constexpr size_t kMostBytes = 16 << 20;
    size_t searched = 0;
    while (true) {
      const size_t end = text_.find('\n', searched);
      if (end != std::string::npos) return TakeLine(end, 1);
      if (text_.size() >= kMostBytes) return TakeLine(kMostBytes, 0);
      searched = text_.size();
      if (!Fill()) break;
    }
    return text_.empty() ? InputLine{} : TakeLine(text_.size(), 0);
  }

 private:
  // Reads more of the input into `text_`. False at its end.
  bool Fill() {
    char bytes[4096];
    ssize_t got = 0;
    do {
      got = read(STDIN_FILENO, bytes, sizeof(bytes));
    } while (got < 0 && errno == EINTR);
    if (got > 0) text_.append(bytes, static_cast<size_t>(got));
    return got > 0;
  }

  InputLine TakeLine(size_t size, size_t separator) {
    std::string line = text_.substr(0, size);
    text_.erase(0, size + separator);
    if (line.ends_with('\r')) line.pop_back();
    return {InputLine::Kind::kText, std::move(line)};
  }

  std::string text_;
};

}  // namespace

std::unique_ptr<LineReader> NewPipeReader() { return std::make_unique<PipeReader>(); }

}  // namespace tandem::terminal
