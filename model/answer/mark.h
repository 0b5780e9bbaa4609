#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace tandem {

// Whether a text is a mark. kMore: it may become one with more text.
enum class Match { kNo, kMore, kYes };

bool IsSpace(char c);
size_t SkipSpace(std::string_view text, size_t at);
// The end of text[0, end) once the white space at its end is removed.
size_t TrimSpace(std::string_view text, size_t end);
std::string_view Trimmed(std::string_view text);

bool OpensTag(char c);   // < or [
bool ClosesTag(char c);  // > or ]
// The mark that `text` is: without white space around it, and with a space between its tags, where
// a model may write any white space.
std::string MarkOf(std::string_view text);

// Whether text continues at `at` with white space and the mark, whose own white space stands for
// any amount. Sets `at` after the mark, or for kNo to where the text differs from it. An empty mark
// matches without white space before it.
Match MatchMark(std::string_view text, size_t& at, std::string_view mark);

struct FoundMark {
  Match match = Match::kNo;
  size_t begin = 0;  // where the mark, or what may become it, begins; text.size() for kNo
  size_t end = 0;    // end of the mark; only for kYes
};
// Finds the first place from which the text is the mark, or may become it with more text. The mark
// is not empty and does not begin with white space.
FoundMark FindMark(std::string_view text, std::string_view mark);

}  // namespace tandem
