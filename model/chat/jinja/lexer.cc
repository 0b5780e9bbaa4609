#include "model/chat/jinja/lexer.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <cstdlib>

#include "base/status.h"
#include "model/chat/jinja/characters.h"

namespace tandem::jinja {
namespace {

// The operators. Longer ones come first, so that "//" is not taken for two of "/".
constexpr std::string_view kOperators[] = {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/",
                                           "*",  "%",  "~",  "[",  "]",  "(",  ")", "{", "}",
                                           ">",  "<",  "=",  ".",  ":",  "|",  ",", ";"};

// Turns line breaks into \n, and drops one at the end.
std::string NormalizeLines(std::string_view source) {
  std::string lines;
  lines.reserve(source.size());
  for (size_t i = 0; i < source.size(); ++i) {
    if (source[i] != '\r') {
      lines += source[i];
      continue;
    }
    lines += '\n';
    if (i + 1 < source.size() && source[i + 1] == '\n') ++i;
  }
  if (!lines.empty() && lines.back() == '\n') lines.pop_back();
  return lines;
}

class Lexer {
 public:
  explicit Lexer(std::string source) : source_(std::move(source)) {}

  absl::StatusOr<std::vector<Token>> Run() {
    while (at_ < source_.size()) RETURN_IF_ERROR(ReadData());
    Add(Token::Kind::kEnd, "", at_);
    return std::move(tokens_);
  }

 private:
  enum class Tag : uint8_t { kBlock, kVariable };

  template <typename... Args>
  absl::Status Fail(size_t offset, fmt::format_string<Args...> format, Args&&... args) {
    return InvalidArgument("{}{}", Describe(PositionOf(offset)),
                           fmt::format(format, std::forward<Args>(args)...));
  }

  // The line and column of an offset. Counting goes on from the last offset, because offsets come
  // in rising order, except for errors.
  Position PositionOf(size_t offset) {
    if (offset < counted_) {
      counted_ = 0;
      position_ = {};
    }
    for (; counted_ < offset; ++counted_) {
      if (source_[counted_] == '\n') {
        ++position_.line;
        position_.column = 1;
      } else {
        ++position_.column;
      }
    }
    return position_;
  }

  void Add(Token::Kind kind, std::string text, size_t offset) {
    tokens_.push_back({kind, std::move(text), Value(), PositionOf(offset)});
  }

  bool Has(size_t offset, std::string_view text) const {
    return std::string_view(source_).substr(offset).starts_with(text);
  }

  size_t SkipSpace(size_t offset) const {
    while (offset < source_.size()) {
      size_t next = offset;
      if (!IsSpace(NextCharacter(source_, next))) break;
      offset = next;
    }
    return offset;
  }

  // Removes from the end of the data the white space that the sign after {% or {{ (-, + or none)
  // asks to.
  std::string_view StripBefore(std::string_view data, char sign, bool is_variable) const {
    if (sign == '-') return data.substr(0, Trim(data, nullptr, Side::kRight).end);
    if (sign == '+' || is_variable) return data;
    const size_t line = data.rfind('\n') + 1;  // 0 when there is none
    if (line == 0 && !line_starting_) return data;
    const bool blank = Trim(data.substr(line), nullptr, Side::kBoth).begin == data.size() - line;
    return blank ? data.substr(0, line) : data;
  }

  char SignAt(size_t offset) const {
    const char c = offset < source_.size() ? source_[offset] : ' ';
    return c == '-' || c == '+' ? c : ' ';
  }

  // Moves behind the end of a tag, which is at `end`, and behind the white space that is trimmed
  // after it.
  void LeaveTag(size_t end, char sign, bool trims_line) {
    at_ = end + 2;
    if (sign == '-') {
      at_ = SkipSpace(at_);
    } else if (sign != '+' && trims_line && at_ < source_.size() && source_[at_] == '\n') {
      ++at_;
    }
    line_starting_ = at_ > 0 && source_[at_ - 1] == '\n';
  }

  absl::Status ReadData() {
    const size_t begin = at_;
    size_t tag = begin;
    while (true) {
      tag = source_.find('{', tag);
      if (tag == std::string::npos || tag + 1 == source_.size()) {
        tag = source_.size();
        break;
      }
      const char next = source_[tag + 1];
      if (next == '%' || next == '{' || next == '#') break;
      ++tag;
    }
    const std::string_view data = std::string_view(source_).substr(begin, tag - begin);
    if (tag == source_.size()) {
      Add(Token::Kind::kData, std::string(data), begin);
      at_ = tag;
      return absl::OkStatus();
    }
    const char sign = SignAt(tag + 2);
    const std::string_view kept = StripBefore(data, sign, source_[tag + 1] == '{');
    if (!kept.empty()) Add(Token::Kind::kData, std::string(kept), begin);
    at_ = tag + (sign == ' ' ? 2 : 3);
    if (source_[tag + 1] == '#') return SkipComment(tag);
    if (source_[tag + 1] == '{') return ReadTag(tag, Tag::kVariable);
    if (const size_t raw = EndOfRawTag(at_); raw != std::string::npos) return ReadRaw(tag, raw);
    return ReadTag(tag, Tag::kBlock);
  }

  absl::Status SkipComment(size_t tag) {
    const size_t end = source_.find("#}", at_);
    if (end == std::string::npos) return Fail(tag, "the comment has no end");
    const char sign = end > at_ ? SignAt(end - 1) : ' ';
    LeaveTag(end, sign, true);
    return absl::OkStatus();
  }

  // For the tag {% raw %}, the offset of its %}; npos where the tag at `offset` is another one.
  size_t EndOfRawTag(size_t offset) const {
    offset = SkipSpace(offset);
    if (!Has(offset, "raw")) return std::string::npos;
    offset = SkipSpace(offset + 3);
    if (Has(offset, "-%}")) return offset + 1;
    return Has(offset, "%}") ? offset : std::string::npos;
  }

  absl::Status ReadRaw(size_t tag, size_t raw_end) {
    LeaveTag(raw_end, source_[raw_end - 1] == '-' ? '-' : ' ', /*trims_line=*/false);
    const size_t begin = at_;
    for (size_t end = source_.find("{%", begin); end != std::string::npos;
         end = source_.find("{%", end + 1)) {
      const char sign = SignAt(end + 2);
      size_t after = SkipSpace(end + (sign == ' ' ? 2 : 3));
      if (!Has(after, "endraw")) continue;
      after = SkipSpace(after + 6);
      const char end_sign = SignAt(after);
      if (end_sign != ' ') ++after;
      if (!Has(after, "%}")) continue;
      const std::string_view data = std::string_view(source_).substr(begin, end - begin);
      const std::string_view kept = StripBefore(data, sign, false);
      if (!kept.empty()) Add(Token::Kind::kData, std::string(kept), begin);
      LeaveTag(after, end_sign, true);
      return absl::OkStatus();
    }
    return Fail(tag, "raw has no endraw");
  }

  absl::Status ReadTag(size_t tag, Tag kind) {
    const bool block = kind == Tag::kBlock;
    Add(block ? Token::Kind::kBlockBegin : Token::Kind::kVariableBegin, "", tag);
    const std::string_view close = block ? "%}" : "}}";
    open_.clear();
    while (true) {
      at_ = SkipSpace(at_);
      if (at_ >= source_.size()) return Fail(tag, "the tag has no end");
      if (open_.empty()) {
        const char sign = SignAt(at_);
        const bool signed_end = sign == '-' || (sign == '+' && block);
        const size_t end = at_ + (signed_end ? 1 : 0);
        if (Has(end, close)) {
          Add(block ? Token::Kind::kBlockEnd : Token::Kind::kVariableEnd, "", at_);
          LeaveTag(end, signed_end ? sign : ' ', block);
          return absl::OkStatus();
        }
      }
      RETURN_IF_ERROR(ReadToken());
    }
  }

  absl::Status ReadToken() {
    const char c = source_[at_];
    const bool digit = c >= '0' && c <= '9';
    if (digit) return ReadNumber();
    if (c == '\'' || c == '"') return ReadString();
    size_t next = at_;
    if (IsWordCharacter(NextCharacter(source_, next))) {
      const size_t begin = at_;
      while (next < source_.size()) {
        size_t after = next;
        if (!IsWordCharacter(NextCharacter(source_, after))) break;
        next = after;
      }
      at_ = next;
      Add(Token::Kind::kName, source_.substr(begin, next - begin), begin);
      return absl::OkStatus();
    }
    return ReadOperator();
  }

  absl::Status ReadOperator() {
    for (const std::string_view op : kOperators) {
      if (!Has(at_, op)) continue;
      if (op == "(" || op == "[" || op == "{") {
        open_ += op == "(" ? ')' : op == "[" ? ']' : '}';
      } else if (op == ")" || op == "]" || op == "}") {
        if (open_.empty()) return Fail(at_, "unexpected '{}'", op);
        if (open_.back() != op[0]) {
          return Fail(at_, "unexpected '{}', expected '{}'", op, open_.back());
        }
        open_.pop_back();
      }
      Add(Token::Kind::kOperator, std::string(op), at_);
      at_ += op.size();
      return absl::OkStatus();
    }
    size_t next = at_;
    NextCharacter(source_, next);
    return Fail(at_, "unexpected character '{}'", source_.substr(at_, next - at_));
  }

  // Appends digits, which single underscores may separate, to `digits`.
  size_t ReadDigits(size_t offset, int base, std::string& digits) const {
    const auto is_digit = [&](size_t i) {
      if (i >= source_.size()) return false;
      const char c = source_[i];
      const int value = c >= '0' && c <= '9'   ? c - '0'
                        : c >= 'a' && c <= 'f' ? c - 'a' + 10
                        : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                               : 99;
      return value < base;
    };
    while (is_digit(offset) || (offset < source_.size() && source_[offset] == '_' &&
                                !digits.empty() && is_digit(offset + 1))) {
      if (source_[offset] != '_') digits += source_[offset];
      ++offset;
    }
    return offset;
  }

  absl::Status ReadNumber() {
    const size_t begin = at_;
    const char marker = at_ + 1 < source_.size() ? static_cast<char>(source_[at_ + 1] | 0x20) : ' ';
    const int base = source_[at_] != '0' ? 10
                     : marker == 'x'     ? 16
                     : marker == 'o'     ? 8
                     : marker == 'b'     ? 2
                                         : 10;
    std::string digits;
    if (base != 10) {
      at_ = ReadDigits(at_ + 2, base, digits);
      return AddInteger(digits, base, begin);
    }
    at_ = ReadDigits(at_, 10, digits);
    const bool after_dot = begin > 0 && source_[begin - 1] == '.';
    std::string real = digits;
    size_t end = after_dot ? at_ : ReadFraction(at_, real);
    if (end == at_) return AddInteger(digits, 10, begin);
    at_ = end;
    tokens_.push_back({Token::Kind::kNumber, source_.substr(begin, end - begin),
                       Value(std::strtod(real.c_str(), nullptr)), PositionOf(begin)});
    return absl::OkStatus();
  }

  // The offset behind a fraction, an exponent or both; `offset` itself where there is neither.
  size_t ReadFraction(size_t offset, std::string& real) const {
    size_t end = offset;
    std::string part;
    if (end < source_.size() && source_[end] == '.') {
      const size_t after = ReadDigits(end + 1, 10, part);
      if (!part.empty()) {
        end = after;
        real += '.' + part;
      }
    }
    if (end < source_.size() && (source_[end] | 0x20) == 'e') {
      const char sign = SignAt(end + 1);
      std::string exponent;
      const size_t after = ReadDigits(end + (sign == ' ' ? 1 : 2), 10, exponent);
      if (!exponent.empty()) {
        end = after;
        real += 'e';
        if (sign != ' ') real += sign;
        real += exponent;
      }
    }
    return end;
  }

  absl::Status AddInteger(const std::string& digits, int base, size_t begin) {
    int64_t value = 0;
    const auto read = std::from_chars(digits.data(), digits.data() + digits.size(), value, base);
    if (digits.empty() || read.ec != std::errc()) {
      return Fail(begin, "the number '{}' does not fit into 64 bits",
                  source_.substr(begin, at_ - begin));
    }
    tokens_.push_back({Token::Kind::kNumber, source_.substr(begin, at_ - begin), Value(value),
                       PositionOf(begin)});
    return absl::OkStatus();
  }

  absl::Status ReadString() {
    const size_t begin = at_;
    const char quote = source_[at_++];
    std::string text;
    while (true) {
      if (at_ >= source_.size()) return Fail(begin, "the string has no end");
      const char c = source_[at_++];
      if (c == quote) break;
      if (c != '\\') {
        text += c;
      } else {
        RETURN_IF_ERROR(ReadEscape(text));
      }
    }
    Add(Token::Kind::kString, std::move(text), begin);
    return absl::OkStatus();
  }

  absl::Status ReadEscape(std::string& text) {
    if (at_ >= source_.size()) return absl::OkStatus();
    constexpr std::string_view kLetters = "\\'\"abfnrtv";
    constexpr std::string_view kMeanings = "\\'\"\a\b\f\n\r\t\v";
    const char c = source_[at_];
    if (const size_t known = kLetters.find(c); known != std::string_view::npos) {
      text += kMeanings[known];
      ++at_;
    } else if (c == '\n') {
      ++at_;
    } else if (c >= '0' && c <= '7') {
      int32_t code = 0;
      for (int i = 0; i < 3 && at_ < source_.size() && source_[at_] >= '0' && source_[at_] <= '7';
           ++i) {
        code = code * 8 + (source_[at_++] - '0');
      }
      AppendCharacter(code, text);
    } else if (c == 'x' || c == 'u' || c == 'U') {
      return ReadHexEscape(c == 'x' ? 2 : c == 'u' ? 4 : 8, text);
    } else if (c == 'N') {
      return Fail(at_, "escapes by the name of a character (\\N) are not supported");
    } else {
      text += '\\';
    }
    return absl::OkStatus();
  }

  absl::Status ReadHexEscape(size_t digits, std::string& text) {
    const std::string hex = source_.substr(at_ + 1, digits);
    uint32_t code = 0;
    const auto read = std::from_chars(hex.data(), hex.data() + hex.size(), code, 16);
    const bool whole = hex.size() == digits && read.ptr == hex.data() + hex.size();
    if (!whole || code > 0x10FFFF || (code >= 0xD800 && code < 0xE000)) {
      return Fail(at_, "'\\{}{}' is no character", source_[at_], hex);
    }
    AppendCharacter(static_cast<int32_t>(code), text);
    at_ += digits + 1;
    return absl::OkStatus();
  }

  const std::string source_;
  size_t at_ = 0;
  std::string open_;  // the brackets that are still to be closed
  bool line_starting_ = true;
  std::vector<Token> tokens_;
  size_t counted_ = 0;
  Position position_;
};

}  // namespace

std::string Describe(Position at) {
  return fmt::format("line {}, column {}: ", at.line, at.column);
}

absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source) {
  if (source.size() > kMaxTemplateBytes) {
    return InvalidArgument("{} bytes; a template may have {}", source.size(), kMaxTemplateBytes);
  }
  return Lexer(NormalizeLines(source)).Run();
}

}  // namespace tandem::jinja
