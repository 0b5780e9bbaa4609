#include "model/chat/jinja/numbers.h"

#include <charconv>
#include <cstdlib>
#include <string>

#include "base/status.h"
#include "model/chat/jinja/characters.h"

namespace tandem::jinja {
namespace {

std::string_view TrimSpace(std::string_view text) {
  const Trimmed trimmed = Trim(text, nullptr, Side::kBoth);
  return text.substr(trimmed.begin, trimmed.end - trimmed.begin);
}

// `text` without the single underscores between its digits; nothing where an underscore is
// elsewhere.
std::optional<std::string> WithoutUnderscores(std::string_view text) {
  std::string digits;
  for (size_t i = 0; i < text.size(); ++i) {
    if (text[i] != '_') {
      digits += text[i];
      continue;
    }
    const auto is_digit = [&](size_t at) {
      return at < text.size() && ((text[at] >= '0' && text[at] <= '9') ||
                                  ((text[at] | 0x20) >= 'a' && (text[at] | 0x20) <= 'z'));
    };
    if (i == 0 || !is_digit(i - 1) || !is_digit(i + 1)) return std::nullopt;
  }
  return digits;
}

}  // namespace

absl::StatusOr<std::optional<int64_t>> ParseInteger(std::string_view text, int64_t base) {
  if (base != 0 && (base < 2 || base > 36)) {
    return InvalidArgument("int's base must be 0 or 2 to 36, not {}", base);
  }
  text = TrimSpace(text);
  bool negative = false;
  if (!text.empty() && (text[0] == '+' || text[0] == '-')) {
    negative = text[0] == '-';
    text.remove_prefix(1);
  }
  if (text.size() > 2 && text[0] == '0') {
    const char letter = static_cast<char>(text[1] | 0x20);
    const int64_t prefix = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    if (prefix != 0 && (base == prefix || base == 0)) {
      base = prefix;
      text.remove_prefix(2);
      if (!text.empty() && text[0] == '_') text.remove_prefix(1);
    }
  }
  const std::optional<std::string> digits = WithoutUnderscores(text);
  if (!digits || digits->empty() || (*digits)[0] == '-' || (*digits)[0] == '+') {
    return std::optional<int64_t>();
  }
  const bool zeros = digits->find_first_not_of('0') == std::string::npos;
  if (base == 0 && (*digits)[0] == '0' && !zeros) return std::optional<int64_t>();
  const std::string whole = (negative ? "-" : "") + *digits;
  int64_t value = 0;
  const auto read = std::from_chars(whole.data(), whole.data() + whole.size(), value,
                                    base == 0 ? 10 : static_cast<int>(base));
  if (read.ptr != whole.data() + whole.size()) return std::optional<int64_t>();
  if (read.ec != std::errc()) return InvalidArgument("{} does not fit into 64 bits", whole);
  return std::optional<int64_t>(value);
}

std::optional<double> ParseReal(std::string_view text) {
  const std::optional<std::string> digits = WithoutUnderscores(TrimSpace(text));
  if (!digits || digits->empty() || digits->find('\0') != std::string::npos) return std::nullopt;
  // strtod reads hexadecimal numbers and "nan(...)", which float() does not.
  const std::string_view allowed = "+-.0123456789eEinfatyINFATY";
  if (digits->find_first_not_of(allowed) != std::string::npos) return std::nullopt;
  char* end = nullptr;
  const double value = std::strtod(digits->c_str(), &end);
  if (end != digits->c_str() + digits->size()) return std::nullopt;
  return value;
}

}  // namespace tandem::jinja
