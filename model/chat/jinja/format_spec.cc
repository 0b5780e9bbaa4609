#include "model/chat/jinja/format_spec.h"

#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "model/chat/jinja/characters.h"

namespace tandem::jinja {
namespace {

constexpr int64_t kMaxWidth = 1000;

std::string WithCommas(const std::string& number) {
  const size_t whole = std::min(number.find_first_of(".e%"), number.size());
  std::string out;
  for (size_t i = 0; i < number.size(); ++i) {
    if (i > 0 && i < whole && (whole - i) % 3 == 0) out += ',';
    out += number[i];
  }
  return out;
}

std::string WithSign(std::string digits, bool negative, const FormatSpec& spec) {
  if (spec.commas) digits = WithCommas(digits);
  if (negative) return "-" + digits;
  return spec.sign == 0 ? digits : std::string(1, spec.sign) + digits;
}

}  // namespace

Text Pad(Text text, const FormatSpec& spec, char default_align) {
  const auto length = static_cast<int64_t>(CountCharacters(text.view()));
  if (length >= spec.width) return text;
  const int64_t missing = spec.width - length;
  const char align = spec.align == 0 ? default_align : spec.align;
  const bool has_sign =
      !text.empty() && (text.view()[0] == '-' || text.view()[0] == '+' || text.view()[0] == ' ');
  int64_t left = align == '<' ? 0 : align == '^' ? missing / 2 : missing;
  Text out;
  size_t begin = 0;
  if (align == '=' && has_sign) {
    out.Append(text, 0, 1);
    begin = 1;
  }
  for (int64_t i = 0; i < left; ++i) out.Append(spec.fill);
  out.Append(text, begin, text.size());
  for (int64_t i = left; i < missing; ++i) out.Append(spec.fill);
  return out;
}

absl::StatusOr<std::string> FormatInteger(int64_t value, const FormatSpec& spec) {
  const uint64_t size = value < 0 ? 0 - static_cast<uint64_t>(value) : static_cast<uint64_t>(value);
  std::string digits;
  switch (spec.type) {
    case 'x':
      digits = fmt::format("{}{:x}", spec.alternate ? "0x" : "", size);
      break;
    case 'X':
      digits = fmt::format("{}{:X}", spec.alternate ? "0X" : "", size);
      break;
    case 'o':
      digits = fmt::format("{}{:o}", spec.alternate ? "0o" : "", size);
      break;
    case 'b':
      digits = fmt::format("{}{:b}", spec.alternate ? "0b" : "", size);
      break;
    default:
      digits = fmt::format("{}", size);
  }
  return WithSign(std::move(digits), value < 0, spec);
}

absl::StatusOr<std::string> FormatFloat(double value, const FormatSpec& spec) {
  if (!std::isfinite(value)) {
    const bool upper = spec.type == 'F' || spec.type == 'E' || spec.type == 'G';
    const std::string name = std::isnan(value) ? (upper ? "NAN" : "nan") : (upper ? "INF" : "inf");
    return WithSign(name, value < 0, spec);
  }
  const double size = std::abs(value);
  const auto precision = spec.precision < 0 ? 6 : spec.precision;
  std::string digits;
  switch (spec.type) {
    case 'f':
    case 'F':
      digits = fmt::format("{:.{}f}", size, precision);
      break;
    case 'e':
      digits = fmt::format("{:.{}e}", size, precision);
      break;
    case 'E':
      digits = fmt::format("{:.{}E}", size, precision);
      break;
    case 'g':
      digits = fmt::format("{:.{}g}", size, std::max<int64_t>(precision, 1));
      break;
    case 'G':
      digits = fmt::format("{:.{}G}", size, std::max<int64_t>(precision, 1));
      break;
    case '%':
      digits = fmt::format("{:.{}f}%", size * 100, precision);
      break;
    default:
      return Unimplemented("the format of type '{}' is not supported for floats", spec.type);
  }
  return WithSign(std::move(digits), std::signbit(value), spec);
}

absl::Status CheckSpec(const FormatSpec& spec) {
  if (spec.width > kMaxWidth || spec.precision > kMaxWidth) {
    return InvalidArgument("a format's width and precision may be at most {}", kMaxWidth);
  }
  return absl::OkStatus();
}

int64_t ReadCount(std::string_view text, size_t& at) {
  int64_t count = 0;
  while (at < text.size() && text[at] >= '0' && text[at] <= '9') {
    count = std::min<int64_t>(count * 10 + (text[at++] - '0'), kMaxWidth + 1);
  }
  return count;
}

Text Truncate(Text text, int64_t precision) {
  if (precision >= 0) text.Resize(OffsetOf(text.view(), static_cast<size_t>(precision)));
  return text;
}

}  // namespace tandem::jinja
