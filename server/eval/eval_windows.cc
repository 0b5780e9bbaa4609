#include "server/eval/eval_windows.h"

#include <algorithm>
#include <optional>

#include "base/status.h"

namespace tandem {
namespace {

// Longer texts are tokenized in pieces of this size, so that the router serves other clients in
// between.
constexpr size_t kPieceBytes = 16 << 10;

// The tokens that the tokenizer puts before every text.
absl::StatusOr<std::vector<int32_t>> TokensBeforeText(const TokenizeText& tokenize) {
  constexpr std::string_view kAnyText = "a";
  ASSIGN_OR_RETURN(const std::vector<int32_t> whole, tokenize(kAnyText, Template::kAdd));
  ASSIGN_OR_RETURN(const std::vector<int32_t> text, tokenize(kAnyText, Template::kOmit));
  return std::vector<int32_t>(whole.begin(),
                              std::search(whole.begin(), whole.end(), text.begin(), text.end()));
}

bool IsInsideCharacter(char c) { return (static_cast<unsigned char>(c) & 0xC0U) == 0x80; }

// The first piece of a text: as much as is tokenized at once, up to a space if there is one. The
// space goes to the next piece, because in most vocabularies it is part of the word behind it.
std::string_view FirstPiece(std::string_view text) {
  if (text.size() <= kPieceBytes) return text;
  const size_t space = text.find_last_of(" \n", kPieceBytes);
  if (space != std::string_view::npos && space > 0) return text.substr(0, space);
  size_t end = kPieceBytes;
  while (end > 1 && IsInsideCharacter(text[end])) --end;
  return text.substr(0, end);
}

// The windows of one text, one behind the other.
class TextWindows {
 public:
  // All arguments must outlive it.
  TextWindows(const EvalText& text, const std::vector<int32_t>& before, const WindowPlan& plan,
              const TokenizeText& tokenize)
      : text_(text), before_(before), plan_(plan), tokenize_(tokenize), unread_(text.text) {}

  // The next window; nothing when the rest of the text is too short for one.
  absl::StatusOr<std::optional<EvalWindow>> Next() {
    const int64_t from_text = plan_.prompt_tokens - std::ssize(before_);
    const auto wanted = static_cast<size_t>(from_text + plan_.output_tokens);
    while (ids_.size() < wanted && !unread_.empty()) RETURN_IF_ERROR(ReadPiece());
    if (ids_.size() < wanted) return std::optional<EvalWindow>();
    EvalWindow window{.name = fmt::format("{}#{}", text_.name, ++count_), .prompt = before_};
    const auto output = ids_.begin() + from_text;
    const auto end = output + plan_.output_tokens;
    window.prompt.insert(window.prompt.end(), ids_.begin(), output);
    window.output.assign(output, end);
    ids_.erase(ids_.begin(), end);
    return window;
  }

 private:
  absl::Status ReadPiece() {
    const std::string_view piece = FirstPiece(unread_);
    unread_.remove_prefix(piece.size());
    ASSIGN_OR_RETURN(const std::vector<int32_t> ids, tokenize_(piece, Template::kOmit));
    ids_.insert(ids_.end(), ids.begin(), ids.end());
    return absl::OkStatus();
  }

  const EvalText& text_;
  const std::vector<int32_t>& before_;
  const WindowPlan& plan_;
  const TokenizeText& tokenize_;
  std::string_view unread_;
  std::vector<int32_t> ids_;  // read, and not in a window yet
  int32_t count_ = 0;
};

}  // namespace

absl::StatusOr<std::vector<EvalWindow>> MakeWindows(const std::vector<EvalText>& texts,
                                                    const WindowPlan& plan,
                                                    const TokenizeText& tokenize) {
  ASSIGN_OR_RETURN(const std::vector<int32_t> before, TokensBeforeText(tokenize));
  if (plan.prompt_tokens <= std::ssize(before)) {
    return InvalidArgument(
        "a prompt of {} tokens has no room for text behind the {} that the tokenizer puts first",
        plan.prompt_tokens, before.size());
  }
  std::vector<TextWindows> sources;
  for (const EvalText& text : texts) sources.emplace_back(text, before, plan, tokenize);
  std::vector<EvalWindow> windows;
  bool found = true;
  while (found) {
    found = false;
    for (TextWindows& source : sources) {
      if (std::ssize(windows) == plan.count) return windows;
      ASSIGN_OR_RETURN(std::optional<EvalWindow> window, source.Next());
      if (!window) continue;
      found = true;
      windows.push_back(*std::move(window));
    }
  }
  if (!windows.empty()) return windows;
  return InvalidArgument(
      "none of {} texts has the {} tokens of a window: give longer texts, or less to "
      "--prompt-tokens and --output-tokens",
      texts.size(), plan.prompt_tokens + plan.output_tokens);
}

}  // namespace tandem
