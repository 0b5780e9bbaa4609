#include "model/answer/mark.h"

namespace tandem {

bool IsSpace(char c) { return c == ' ' || c == '\n' || c == '\t' || c == '\r'; }

size_t SkipSpace(std::string_view text, size_t at) {
  while (at < text.size() && IsSpace(text[at])) ++at;
  return at;
}

size_t TrimSpace(std::string_view text, size_t end) {
  while (end > 0 && IsSpace(text[end - 1])) --end;
  return end;
}

std::string_view Trimmed(std::string_view text) {
  const size_t begin = SkipSpace(text, 0);
  const size_t end = TrimSpace(text, text.size());
  return begin < end ? text.substr(begin, end - begin) : std::string_view();
}

Match MatchMark(std::string_view text, size_t& at, std::string_view mark) {
  if (mark.empty()) return Match::kYes;
  size_t i = SkipSpace(text, at);
  for (size_t m = 0; m < mark.size(); ++m) {
    if (IsSpace(mark[m])) {
      i = SkipSpace(text, i);
      continue;
    }
    if (i == text.size()) return Match::kMore;
    if (text[i] != mark[m]) {
      at = i;
      return Match::kNo;
    }
    ++i;
  }
  at = i;
  return Match::kYes;
}

FoundMark FindMark(std::string_view text, std::string_view mark) {
  for (size_t begin = text.find(mark[0]); begin != std::string_view::npos;
       begin = text.find(mark[0], begin + 1)) {
    size_t end = begin;
    const Match match = MatchMark(text, end, mark);
    if (match != Match::kNo) return {match, begin, end};
  }
  return {Match::kNo, text.size(), text.size()};
}

bool OpensTag(char c) { return c == '<' || c == '['; }
bool ClosesTag(char c) { return c == '>' || c == ']'; }

std::string MarkOf(std::string_view text) {
  std::string mark;
  for (const char c : Trimmed(text)) {
    if (!mark.empty() && ClosesTag(mark.back()) && (OpensTag(c) || c == '{')) mark += ' ';
    mark += c;
  }
  return mark;
}

}  // namespace tandem
