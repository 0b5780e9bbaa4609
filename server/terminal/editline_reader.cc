// Typed lines with libedit: arrow keys, history of this session, completion of commands by Tab.
#include <histedit.h>
#include <unistd.h>

#include <clocale>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <utility>

#include "base/utf8.h"
#include "server/terminal/line_reader.h"
#include "server/terminal/user_input.h"

namespace tandem::terminal {
namespace {

constexpr int kRememberedLines = 1000;
constexpr char kCompleteFunction[] = "tandem-complete";

// libedit draws in the locale's characters. Where that has single bytes alone, as "C", UTF-8 is the
// better guess.
void UseUtf8() {
  std::setlocale(LC_CTYPE, "");
  if (MB_CUR_MAX == 1) std::setlocale(LC_CTYPE, "C.UTF-8");
}

// The code point of one character in well-formed UTF-8.
wchar_t Decode(std::string_view bytes) {
  const auto first = static_cast<unsigned char>(bytes.front());
  if (first < 0x80) return first;
  uint32_t point = first & (0x7fU >> bytes.size());
  for (const char byte : bytes.substr(1)) {
    point = (point << 6) | (static_cast<unsigned char>(byte) & 0x3fU);
  }
  return static_cast<wchar_t>(point);
}

class EditlineReader final : public LineReader {
 public:
  EditlineReader(Wakeup& wakeup, TerminalSignals& signals) : wakeup_(wakeup), signals_(signals) {
    UseUtf8();
    edit_ = el_init("tandem", stdin, stdout, stderr);
    history_ = history_init();
    HistEvent event;
    history(history_, &event, H_SETSIZE, kRememberedLines);
    history(history_, &event, H_SETUNIQUE, 1);
    el_set(edit_, EL_CLIENTDATA, this);
    el_set(edit_, EL_PROMPT, &EditlineReader::Prompt);
    el_set(edit_, EL_EDITOR, "emacs");
    el_set(edit_, EL_SIGNAL, 0);
    el_set(edit_, EL_HIST, history, history_);
    el_set(edit_, EL_GETCFN, &EditlineReader::ReadCharacter);
    el_set(edit_, EL_ADDFN, kCompleteFunction, "complete a command", &EditlineReader::Complete);
    el_set(edit_, EL_BIND, "\t", kCompleteFunction, nullptr);
    // The keys that terminals send for Home, End and Delete, which libedit does not bind by itself.
    el_set(edit_, EL_BIND, "\033[H", "ed-move-to-beg", nullptr);
    el_set(edit_, EL_BIND, "\033[F", "ed-move-to-end", nullptr);
    el_set(edit_, EL_BIND, "\033[3~", "ed-delete-next-char", nullptr);
    el_set(edit_, EL_BIND, "^R", "em-inc-search-prev", nullptr);
  }
  ~EditlineReader() override {
    el_end(edit_);
    history_end(history_);
  }
  EditlineReader(const EditlineReader&) = delete;
  EditlineReader& operator=(const EditlineReader&) = delete;

  InputLine Read(std::string_view prompt) override {
    prompt_ = prompt;
    interrupted_ = had_text_ = false;
    std::fflush(stdout);
    if (signals_.TakeResize()) el_resize(edit_);
    // Turns off the terminal's own echo now: libedit does that only after it has drawn the prompt,
    // and what was typed before that would be seen twice.
    el_set(edit_, EL_PREP_TERM, 1);
    int size = 0;
    const char* text = el_gets(edit_, &size);
    if (interrupted_) {
      std::fputs("\n", stdout);
      return {InputLine::Kind::kInterrupted, "", had_text_};
    }
    if (text == nullptr || size <= 0) {
      std::fputs("\n", stdout);
      return {};
    }
    std::string line(text, static_cast<size_t>(size));
    if (line.ends_with('\n')) line.pop_back();
    return {InputLine::Kind::kText, std::move(line)};
  }

  void Remember(std::string_view text) override {
    HistEvent event;
    history(history_, &event, H_ENTER, std::string(text).c_str());
  }

 private:
  static EditlineReader& Of(EditLine* edit) {
    void* self = nullptr;
    el_get(edit, EL_CLIENTDATA, &self);
    return *static_cast<EditlineReader*>(self);
  }

  static char* Prompt(EditLine* edit) { return Of(edit).prompt_.data(); }

  // Replaces libedit's own function, which ignores one interrupt and goes on reading.
  static int ReadCharacter(EditLine* edit, wchar_t* character) {
    return Of(edit).ReadOne(*character);
  }

  // Reads one character. Returns 1 if it came, 0 at the end of the input, -1 for Ctrl-C.
  int ReadOne(wchar_t& character) {
    constexpr size_t kLongest = 4;
    std::string bytes;
    while (true) {
      const bool readable = wakeup_.WaitFor(STDIN_FILENO);
      if (signals_.TakeInterrupt()) {
        const LineInfo* line = el_line(edit_);
        had_text_ = line->lastchar > line->buffer;
        interrupted_ = true;
        return -1;
      }
      if (signals_.TakeResize()) el_resize(edit_);
      if (signals_.TakeContinue()) TakeTerminalBack();
      if (!readable) continue;
      char byte = 0;
      if (read(STDIN_FILENO, &byte, 1) != 1) return 0;
      bytes += byte;
      if (ValidUtf8Prefix(bytes) == bytes.size()) break;
      // Bytes that cannot become a character are thrown away.
      if (bytes.size() >= kLongest || IncompleteUtf8Suffix(bytes) != bytes.size()) bytes.clear();
    }
    character = Decode(bytes);
    return 1;
  }

  // Sets the terminal up again after the program was in the background, because the shell has
  // changed its settings.
  void TakeTerminalBack() {
    el_set(edit_, EL_PREP_TERM, 0);
    el_set(edit_, EL_PREP_TERM, 1);
    el_set(edit_, EL_REFRESH);
  }

  static unsigned char Complete(EditLine* edit, int) {
    const LineInfo* line = el_line(edit);
    const std::string_view before(line->buffer, static_cast<size_t>(line->cursor - line->buffer));
    const std::optional<std::string> rest = CompletionOf(before);
    if (!rest || el_insertstr(edit, rest->c_str()) != 0) return CC_ERROR;
    return CC_REFRESH;
  }

  Wakeup& wakeup_;
  TerminalSignals& signals_;
  EditLine* edit_ = nullptr;
  History* history_ = nullptr;
  std::string prompt_;
  bool interrupted_ = false;
  bool had_text_ = false;
};

}  // namespace

std::unique_ptr<LineReader> NewTerminalReader(Wakeup& wakeup, TerminalSignals& signals) {
  return std::make_unique<EditlineReader>(wakeup, signals);
}

}  // namespace tandem::terminal
