#include "model/tokenizer/regex_syntax.h"

#include <algorithm>
#include <array>

#include "base/status.h"

namespace tandem {
namespace {

// Unicode's white space and its complement, as members of a character class. PCRE2's own \s would
// also match U+180E.
constexpr std::string_view kSpaceMembers = R"(\t-\r\x{85}\p{Z})";
constexpr std::string_view kNoSpaceMembers =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff})"
    R"(\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
// Oniguruma's word characters, which include the superscripts and fractions of Latin-1 but no other
// such numbers.
constexpr std::string_view kWordMembers =
    R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";

bool IsAlphanumeric(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'Z') || (c >= 'a' && c <= 'z');
}

bool IsHex(char c) {
  return (c >= '0' && c <= '9') || (c >= 'A' && c <= 'F') || (c >= 'a' && c <= 'f');
}

// Whether the pattern may have a pair such as ss, which Oniguruma takes for one character (sharp s)
// when it ignores case.
bool HasFoldingPair(std::string_view pattern) {
  constexpr std::array<std::string_view, 5> kPairs = {"ss", "ff", "fi", "fl", "st"};
  std::string lower(pattern);
  for (char& c : lower) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  return std::any_of(
             kPairs.begin(), kPairs.end(),
             [&](std::string_view pair) { return lower.find(pair) != std::string::npos; }) ||
         std::any_of(lower.begin(), lower.end(), [](char c) { return (c & 0x80) != 0; });
}

class Translator {
 public:
  explicit Translator(std::string_view pattern) : pattern_(pattern) {}

  absl::StatusOr<std::string> Run() {
    while (at_ < pattern_.size()) RETURN_IF_ERROR(in_class_ ? InClass() : Outside());
    return std::move(out_);
  }

 private:
  absl::Status Refuse(std::string_view what) const {
    return Unimplemented("pattern {}: {} at byte {} is not supported", pattern_, what, at_);
  }

  std::string_view Rest() const { return pattern_.substr(at_); }
  char Peek(size_t offset) const {
    return at_ + offset < pattern_.size() ? pattern_[at_ + offset] : '\0';
  }
  absl::Status Take(size_t count) {
    out_.append(Rest().substr(0, count));
    at_ += count;
    return absl::OkStatus();
  }
  absl::Status Write(std::string_view text, size_t taken) {
    out_.append(text);
    at_ += taken;
    return absl::OkStatus();
  }

  absl::Status Outside() {
    switch (Peek(0)) {
      case '\\':
        return Escape();
      case '[':
        return OpenClass();
      case '(':
        return OpenGroup();
      case '{':
        return Repeat();
      case '^':
      case '$':
        return Refuse("an anchor");
      default:
        return Take(1);
    }
  }

  absl::Status OpenClass() {
    const size_t length = Peek(1) == '^' ? 2 : 1;
    if (Peek(length) == ']') return Refuse("] as the first member of a class");
    in_class_ = true;
    return Take(length);
  }

  absl::Status InClass() {
    switch (Peek(0)) {
      case '\\':
        return Escape();
      case '[':
        return Refuse("a class inside a class");
      case '&':
        if (Peek(1) == '&') return Refuse("the class operation &&");
        return Take(1);
      case ']':
        in_class_ = false;
        return Take(1);
      default:
        return Take(1);
    }
  }

  absl::Status OpenGroup() {
    constexpr std::array<std::string_view, 8> kKnown = {"(?:",  "(?=",  "(?!",  "(?>",
                                                        "(?<=", "(?<!", "(?i:", "(?-i:"};
    if (Rest().substr(0, 3) == "(?i" && HasFoldingPair(pattern_)) {
      return Refuse("case-insensitive matching of letters that have a joint form");
    }
    for (const std::string_view opening : kKnown) {
      if (Rest().substr(0, opening.size()) == opening) return Take(opening.size());
    }
    if (at_ == 0 && Rest().substr(0, 4) == "(?i)") return Take(4);
    if (Peek(1) == '?' || Peek(1) == '*') return Refuse("this kind of group");
    return Take(1);
  }

  // Reads a repetition {n}, {n,}, {n,m} or {,m}; anything else is a literal brace.
  absl::Status Repeat() {
    const size_t close = Rest().find('}');
    const std::string_view inside =
        close == std::string_view::npos ? "" : Rest().substr(1, close - 1);
    const bool is_repeat = inside.find_first_of("0123456789") != std::string_view::npos &&
                           inside.find_first_not_of("0123456789,") == std::string_view::npos &&
                           std::count(inside.begin(), inside.end(), ',') <= 1;
    if (!is_repeat) return Write("\\{", 1);
    const char next = Peek(close + 1);
    if (next == '+' || (next == '?' && inside.find(',') == std::string_view::npos)) {
      return Refuse("a second quantifier");
    }
    if (inside.front() != ',') return Take(close + 1);
    out_.append("{0").append(inside);
    return Write("}", close + 1);
  }

  absl::Status Members(std::string_view members) {
    if (in_class_) return Write(members, 2);
    out_.append("[").append(members);
    return Write("]", 2);
  }

  absl::Status Escape() {
    const char c = Peek(1);
    switch (c) {
      case '\0':
        return Refuse("a lone backslash");
      case 's':
        return Members(kSpaceMembers);
      case 'S':
        return Members(kNoSpaceMembers);
      case 'w':
        return Members(kWordMembers);
      case 'd':
        return Write("\\p{Nd}", 2);
      case 'D':
        return Write("\\P{Nd}", 2);
      case 'v':
        return Write("\\x{0b}", 2);
      case 'r':
      case 'n':
      case 't':
      case 'f':
      case 'a':
      case 'e':
        return Take(2);
      case 'p':
      case 'P':
        return Property();
      case 'x':
        return HexEscape();
      case 'u':
        return CodeUnitEscape();
      default:
        if (IsAlphanumeric(c)) return Refuse("this escape");
        return Take(2);
    }
  }

  absl::Status Property() {
    const size_t close = Rest().find('}');
    if (Peek(2) != '{' || close == std::string_view::npos) return Refuse("a property without {}");
    std::string_view name = Rest().substr(3, close - 3);
    if (!name.empty() && name.front() == '^') name.remove_prefix(1);
    const bool plain = !name.empty() && std::all_of(name.begin(), name.end(), [](char c) {
      return IsAlphanumeric(c) || c == '_';
    });
    if (!plain) return Refuse("this property name");
    return Take(close + 1);
  }

  absl::Status HexEscape() {
    if (Peek(2) == '{') {
      const size_t close = Rest().find('}');
      const bool fits = close != std::string_view::npos && close > 3 && close <= 9;
      const std::string_view digits = fits ? Rest().substr(3, close - 3) : "";
      if (!fits || !std::all_of(digits.begin(), digits.end(), IsHex)) return Refuse("this escape");
      return Take(close + 1);
    }
    // \xHH above 7F is a byte in Oniguruma and a character in PCRE2.
    if (!IsHex(Peek(2)) || !IsHex(Peek(3)) || Peek(2) > '7') return Refuse("this escape");
    return Take(4);
  }

  absl::Status CodeUnitEscape() {
    const std::string_view digits = Rest().substr(2, 4);
    if (digits.size() != 4 || !std::all_of(digits.begin(), digits.end(), IsHex)) {
      return Refuse("this escape");
    }
    out_.append("\\x{").append(digits);
    return Write("}", 6);
  }

  const std::string_view pattern_;
  size_t at_ = 0;
  bool in_class_ = false;
  std::string out_;
};

}  // namespace

absl::StatusOr<std::string> OnigurumaToPcre2(std::string_view pattern) {
  // White space at the end of a line, which DeepSeek's tokenizers cut off: the one pattern with an
  // anchor that is published. The look-behind changes no match, since a run of white space that
  // does not match from its first character matches from none; without it, a long run that ends in
  // something else would be tried from each of its characters, in quadratic time.
  if (pattern == R"(\s+$)") {
    return fmt::format("(?<![{0}])[{0}]+(?=\\n|\\z)", kSpaceMembers);
  }
  return Translator(pattern).Run();
}

}  // namespace tandem
