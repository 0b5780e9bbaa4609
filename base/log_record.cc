#include "base/log_record.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <type_traits>
#include <utility>

#include "base/utf8.h"
#include "fmt/format.h"

namespace tandem {
namespace {

// A piece of a formatted log line: a character of the format itself, or the text of an argument.
struct Piece {
  char literal = 0;
  std::optional<std::string> value;
  bool is_number = false;
  bool is_missing = false;  // the argument is an empty text or NaN

  bool Is(char c) const { return !value && literal == c; }
};

// The largest integer that every reader of JSON keeps exactly: 2^53.
constexpr uint64_t kMostExact = uint64_t{1} << 53;

// What is to be known of an argument besides its text.
struct ValueKind {
  bool is_number = false;
  bool is_missing = false;
};

template <typename T>
ValueKind KindOf(const T& value) {
  if constexpr (std::is_same_v<T, bool>) {
    return {.is_number = true};
  } else if constexpr (std::is_floating_point_v<T>) {
    return {.is_number = std::isfinite(value), .is_missing = std::isnan(value)};
  } else if constexpr (std::is_integral_v<T> && sizeof(T) <= sizeof(uint64_t) &&
                       !std::is_same_v<T, char>) {
    const auto wide = static_cast<int64_t>(value);
    const bool is_exact = std::is_signed_v<T> ? wide <= static_cast<int64_t>(kMostExact) &&
                                                    wide >= -static_cast<int64_t>(kMostExact)
                                              : static_cast<uint64_t>(value) <= kMostExact;
    return {.is_number = is_exact};
  } else {
    return {};
  }
}

// Whether a format specification prints a decimal number. Hexadecimal and the like count as texts,
// even where all digits are decimal.
bool IsDecimal(std::string_view spec) {
  return spec.empty() || std::string_view("xXobBc").find(spec.back()) == std::string_view::npos;
}

// Whether `text` is a number as JSON has it (no leading zeros, no plus sign, digits on both sides
// of the point), or a truth value.
bool IsJsonNumber(std::string_view text) {
  if (text == "true" || text == "false") return true;
  if (text.starts_with('-')) text.remove_prefix(1);
  const size_t whole = std::min(text.find_first_not_of("0123456789"), text.size());
  if (whole == 0 || (whole > 1 && text.front() == '0')) return false;
  if (whole == text.size()) return true;
  if (text[whole] != '.' && text[whole] != 'e') return false;
  return text.back() >= '0' && text.back() <= '9' && text[whole + 1] != 'e';
}

// Splits a format into pieces and fills in the arguments. Nothing where the format has what formats
// of the log do not: names of arguments or nested braces.
std::optional<std::vector<Piece>> Split(std::string_view format, fmt::format_args args) {
  std::vector<Piece> pieces;
  int next = 0;
  for (size_t i = 0; i < format.size(); ++i) {
    const bool is_doubled = i + 1 < format.size() && format[i + 1] == format[i];
    if ((format[i] != '{' && format[i] != '}') || is_doubled) {
      pieces.push_back({.literal = format[i], .value = std::nullopt});
      if (is_doubled && (format[i] == '{' || format[i] == '}')) ++i;
      continue;
    }
    const size_t end = format.find('}', i);
    if (end == std::string_view::npos) return std::nullopt;
    const std::string_view inside = format.substr(i + 1, end - i - 1);
    if (!inside.empty() && (inside.front() != ':' || inside.find('{') != inside.npos)) {
      return std::nullopt;
    }
    const ValueKind kind =
        fmt::visit_format_arg([](const auto& value) { return KindOf(value); }, args.get(next));
    std::string value = fmt::vformat(fmt::format("{{{}{}}}", next, inside), args);
    ++next;
    const bool is_missing = kind.is_missing || value.empty();
    pieces.push_back({.value = std::move(value),
                      .is_number = kind.is_number && IsDecimal(inside),
                      .is_missing = is_missing});
    i = end;
  }
  return pieces;
}

bool IsKeyCharacter(const Piece& piece) {
  const char c = piece.literal;
  return !piece.value && ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
                          (c >= '0' && c <= '9') || c == '_' || c == '.');
}

void Append(const Piece& piece, std::string& text) {
  if (piece.value) {
    text += *piece.value;
  } else {
    text += piece.literal;
  }
}

class Assembler {
 public:
  explicit Assembler(const std::vector<Piece>& pieces) : pieces_(pieces) {}

  LogRecord Assemble() {
    while (at_ < pieces_.size()) {
      const bool begins_word = at_ == 0 || pieces_[at_ - 1].Is(' ');
      if (begins_word && TakeField()) continue;
      const Piece& piece = pieces_[at_++];
      Append(piece, record_.text);
      // The message leaves out the space behind a field when there is a space before the field too,
      // or when the field comes first.
      const bool is_left_behind = std::exchange(after_field_, false) && piece.Is(' ') &&
                                  (record_.message.empty() || record_.message.back() == ' ');
      if (!is_left_behind) Append(piece, record_.message);
    }
    if (after_field_ && record_.message.ends_with(' ')) record_.message.pop_back();
    return std::move(record_);
  }

 private:
  // Reads the field that begins at at_. False, without any change, where none begins there.
  bool TakeField() {
    size_t end = at_;
    std::string key;
    while (end < pieces_.size() && IsKeyCharacter(pieces_[end])) key += pieces_[end++].literal;
    if (key.empty() || end == pieces_.size() || !pieces_[end].Is('=')) return false;
    const size_t begin = end + 1;
    const bool is_quoted = begin < pieces_.size() && pieces_[begin].Is('"');
    end = begin + (is_quoted ? 1 : 0);
    while (end < pieces_.size() && !pieces_[end].Is(is_quoted ? '"' : ' ')) ++end;
    AddField(std::move(key), begin + (is_quoted ? 1 : 0), end, is_quoted);
    if (is_quoted && end < pieces_.size()) ++end;
    at_ = end;
    after_field_ = true;
    return true;
  }

  void AddField(std::string key, size_t begin, size_t end, bool is_quoted) {
    size_t last = end;  // punctuation of the sentence around the field is not part of its value
    while (!is_quoted && last > begin && (pieces_[last - 1].Is(',') || pieces_[last - 1].Is(':'))) {
      --last;
    }
    if (!is_quoted && last == begin + 1 && pieces_[begin].is_missing) {
      // A missing value leaves its field out of the text, and the space before the field as well.
      if (record_.text.ends_with(' ')) record_.text.pop_back();
      return;
    }
    LogField field{.key = std::move(key), .value = {}};
    for (size_t i = begin; i < last; ++i) Append(pieces_[i], field.value);
    field.is_json =
        !is_quoted && last == begin + 1 && pieces_[begin].is_number && IsJsonNumber(field.value);
    record_.text += field.key + (is_quoted ? "=\"" : "=") + field.value + (is_quoted ? "\"" : "");
    for (size_t i = last; i < end; ++i) Append(pieces_[i], record_.text);
    record_.fields.push_back(std::move(field));
  }

  const std::vector<Piece>& pieces_;
  size_t at_ = 0;
  bool after_field_ = false;  // the latest piece belonged to a field
  LogRecord record_;
};

void AppendString(std::string_view text, std::string& json) {
  json += '"';
  for (const char c : ReplaceInvalidUtf8(text)) {
    if (c == '"' || c == '\\') {
      json += '\\';
      json += c;
    } else if (c == '\n') {
      json += "\\n";
    } else if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f) {
      json += fmt::format("\\u{:04x}", static_cast<unsigned>(c));
    } else {
      json += c;
    }
  }
  json += '"';
}

void AppendMember(std::string_view key, std::string_view value, std::string& json) {
  json += json.size() == 1 ? "" : ",";
  AppendString(key, json);
  json += ':';
  AppendString(value, json);
}

bool IsTaken(std::string_view key) {
  constexpr std::string_view kTaken[] = {"time", "level", "process", "thread", "message"};
  return std::ranges::find(kTaken, key) != std::end(kTaken);
}

}  // namespace

LogRecord ToLogRecord(fmt::string_view format, fmt::format_args args) {
  const auto pieces = Split({format.data(), format.size()}, args);
  if (pieces) return Assembler(*pieces).Assemble();
  std::string text = fmt::vformat(format, args);
  return {.text = text, .message = text, .fields = {}};
}

std::string ToJsonLine(const LogOrigin& origin, const LogRecord& record) {
  std::string json = "{";
  AppendMember("time", origin.time, json);
  AppendMember("level", origin.level, json);
  AppendMember("process", origin.process, json);
  if (!origin.thread.empty()) AppendMember("thread", origin.thread, json);
  AppendMember("message", record.message, json);
  for (const LogField& field : record.fields) {
    const std::string key = field.key + (IsTaken(field.key) ? "_" : "");
    if (field.is_json) {
      json += ',';
      AppendString(key, json);
      json += ':' + field.value;
    } else {
      AppendMember(key, field.value, json);
    }
  }
  return json + "}";
}

}  // namespace tandem
