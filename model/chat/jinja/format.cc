#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/status.h"
#include "model/chat/jinja/characters.h"
#include "model/chat/jinja/operators.h"
#include "model/chat/jinja/print.h"

namespace tandem::jinja {
namespace {

constexpr int64_t kMaxWidth = 1000;

// How one value is written: the fields of "%-05.2f" and of "{:<5.2f}".
struct FormatSpec {
  std::string fill = " ";
  char align = 0;  // < > ^ or = ; 0: as the type wants it
  char sign = 0;   // + or a space
  bool alternate = false;
  bool commas = false;
  int64_t width = 0;
  int64_t precision = -1;
  char type = 0;
};

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

// Reads a decimal number such as "12" at `at`; 0 where there are no digits.
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

// Formats text % values as Python does.
class PercentFormatter {
 public:
  PercentFormatter(const Text& text, const Value& values, Machine& machine)
      : text_(text), values_(values), machine_(machine) {
    const List* list = values.list();
    if (list != nullptr && list->kind == List::Kind::kTuple) tuple_ = list;
  }

  absl::StatusOr<Value> Run() {
    const std::string_view format = text_.view();
    RETURN_IF_ERROR(machine_.SpendBytes(format.size()));
    size_t begin = 0;
    while (true) {
      const size_t percent = format.find('%', begin);
      out_.Append(text_, begin, std::min(percent, format.size()));
      if (percent == std::string_view::npos) break;
      begin = percent + 1;
      RETURN_IF_ERROR(WriteOne(begin));
    }
    // A value that can be subscripted may have more items than the format uses.
    const bool may_be_left =
        tuple_ == nullptr &&
        (values_.dict() != nullptr || values_.list() != nullptr || values_.undefined() != nullptr);
    const size_t given = tuple_ != nullptr ? tuple_->items.size() : 1;
    if (used_ < given && !may_be_left) {
      return InvalidArgument("not all arguments are used by the format '{}'", format);
    }
    return Value(std::move(out_));
  }

 private:
  absl::StatusOr<Value> NextValue() {
    if (tuple_ == nullptr && used_++ == 0) return values_;
    if (tuple_ != nullptr && used_ < tuple_->items.size()) return tuple_->items[used_++];
    return InvalidArgument("not enough arguments for the format '{}'", text_.view());
  }

  absl::Status WriteOne(size_t& at) {
    const std::string_view format = text_.view();
    FormatSpec spec;
    std::optional<Value> value;
    if (at < format.size() && format[at] == '(') {
      const size_t close = format.find(')', at);
      if (close == std::string_view::npos || values_.dict() == nullptr) {
        return InvalidArgument("the format '{}' wants a dict", format);
      }
      const Value* found = values_.dict()->Find(format.substr(at + 1, close - at - 1));
      if (found == nullptr) return InvalidArgument("the format '{}' has an unknown key", format);
      value = *found;
      at = close + 1;
    }
    for (;
         at < format.size() && std::string_view("-+ #0").find(format[at]) != std::string_view::npos;
         ++at) {
      if (format[at] == '-') spec.align = '<';
      if (format[at] == '+' || (format[at] == ' ' && spec.sign == 0)) spec.sign = format[at];
      if (format[at] == '#') spec.alternate = true;
      if (format[at] == '0') spec.fill = "0";
    }
    spec.width = ReadCount(format, at);
    if (at < format.size() && format[at] == '.') spec.precision = ReadCount(format, ++at);
    if (at >= format.size()) return InvalidArgument("the format '{}' is incomplete", format);
    spec.type = format[at++];
    RETURN_IF_ERROR(CheckSpec(spec));
    if (spec.type == '%') {
      out_.Append("%");
      return absl::OkStatus();
    }
    if (!value) {
      ASSIGN_OR_RETURN(value, NextValue());
    }
    return WriteValue(*value, spec);
  }

  absl::Status WriteValue(const Value& value, FormatSpec spec) {
    RETURN_IF_ERROR(machine_.SpendBytes(static_cast<size_t>(spec.width)));
    if (spec.type == 's' || spec.type == 'r') {
      spec.fill = " ";
      ASSIGN_OR_RETURN(Text text, spec.type == 's' ? Str(value, machine_) : Repr(value, machine_));
      out_.Append(Pad(Truncate(std::move(text), spec.precision), spec, '>'));
      return absl::OkStatus();
    }
    if (spec.align == '<') spec.fill = " ";
    const char align = spec.fill == "0" ? '=' : '>';
    if (std::string_view("fFeEgG").find(spec.type) != std::string_view::npos) {
      if (value.undefined() != nullptr) return UndefinedError(*value.undefined());
      if (!value.number()) return InvalidArgument("%{} wants a number", spec.type);
      ASSIGN_OR_RETURN(std::string digits, FormatFloat(*value.number(), spec));
      RETURN_IF_ERROR(machine_.Spend(digits.size()));  // long numbers are slow to print
      out_.Append(Pad(Text(std::move(digits)), spec, align));
      return absl::OkStatus();
    }
    if (std::string_view("diuxXo").find(spec.type) == std::string_view::npos) {
      return Unimplemented("the format %{} is not supported", spec.type);
    }
    if (value.undefined() != nullptr) return UndefinedError(*value.undefined());
    std::optional<int64_t> integer = value.integer();
    const bool decimal = spec.type == 'd' || spec.type == 'i' || spec.type == 'u';
    if (!integer && decimal && value.real() && std::abs(*value.real()) < 9e18) {
      integer = static_cast<int64_t>(*value.real());
    }
    if (!integer) return InvalidArgument("%{} wants an integer", spec.type);
    if (spec.precision >= 0)
      return Unimplemented("%.{}{} is not supported", spec.precision, spec.type);
    ASSIGN_OR_RETURN(std::string digits, FormatInteger(*integer, spec));
    out_.Append(Pad(Text(std::move(digits)), spec, align));
    return absl::OkStatus();
  }

  const Text& text_;
  const Value& values_;
  Machine& machine_;
  const List* tuple_ = nullptr;
  size_t used_ = 0;
  Text out_;
};

// Parses the format "[[fill]align][sign][#][0][width][,][.precision][type]".
absl::StatusOr<FormatSpec> ParseSpec(std::string_view text) {
  FormatSpec spec;
  size_t at = 0;
  const auto is_align = [&](size_t i) {
    return i < text.size() && std::string_view("<>^=").find(text[i]) != std::string_view::npos;
  };
  const size_t first = text.empty() ? 0 : CharacterBytes(text[0]);
  if (!text.empty() && is_align(first)) {
    spec.fill = std::string(text.substr(0, first));
    spec.align = text[first];
    at = first + 1;
  } else if (is_align(0)) {
    spec.align = text[at++];
  }
  if (at < text.size() && (text[at] == '+' || text[at] == '-' || text[at] == ' ')) {
    spec.sign = text[at] == '-' ? 0 : text[at];
    ++at;
  }
  if (at < text.size() && text[at] == '#') spec.alternate = ++at > 0;
  if (at < text.size() && text[at] == '0') {
    if (spec.align == 0) {
      spec.fill = "0";
      spec.align = '=';
    }
    ++at;
  }
  spec.width = ReadCount(text, at);
  if (at < text.size() && text[at] == ',') spec.commas = ++at > 0;
  if (at < text.size() && text[at] == '.') spec.precision = ReadCount(text, ++at);
  if (at < text.size()) spec.type = text[at++];
  if (at < text.size()) return Unimplemented("the format '{}' is not supported", text);
  RETURN_IF_ERROR(CheckSpec(spec));
  return spec;
}

absl::StatusOr<Text> FormatValue(const Value& value, std::string_view spec_text, Machine& machine) {
  if (spec_text.empty()) return Str(value, machine);
  ASSIGN_OR_RETURN(FormatSpec spec, ParseSpec(spec_text));
  RETURN_IF_ERROR(machine.SpendBytes(static_cast<size_t>(spec.width)));
  if (value.text() != nullptr) {
    RETURN_IF_ERROR(machine.SpendBytes(value.text()->size()));
    if ((spec.type != 0 && spec.type != 's') || spec.align == '=' || spec.sign != 0) {
      return InvalidArgument("the format '{}' does not suit a string", spec_text);
    }
    return Pad(Truncate(*value.text(), spec.precision), spec, '<');
  }
  const bool real_type = std::string_view("fFeEgG%").find(spec.type) != std::string_view::npos;
  if (value.number() && spec.type != 0 && real_type) {
    ASSIGN_OR_RETURN(std::string digits, FormatFloat(*value.number(), spec));
    RETURN_IF_ERROR(machine.Spend(digits.size()));
    return Pad(Text(std::move(digits)), spec, '>');
  }
  const bool integer_type =
      spec.type == 0 || std::string_view("dxXob").find(spec.type) != std::string_view::npos;
  if (value.integer() && integer_type && spec.precision < 0) {
    ASSIGN_OR_RETURN(std::string digits, FormatInteger(*value.integer(), spec));
    return Pad(Text(std::move(digits)), spec, '>');
  }
  return Unimplemented("the format '{}' of a value of type '{}' is not supported", spec_text,
                       value.type());
}

}  // namespace

absl::StatusOr<Value> FormatPercent(const Text& text, const Value& values, Machine& machine) {
  return PercentFormatter(text, values, machine).Run();
}

absl::StatusOr<Value> FormatBraces(const Text& text, const Arguments& arguments, Machine& machine) {
  const std::string_view format = text.view();
  RETURN_IF_ERROR(machine.SpendBytes(format.size()));
  Text out;
  size_t automatic = 0;
  for (size_t at = 0; at < format.size();) {
    const size_t brace = std::min(format.find_first_of("{}", at), format.size());
    out.Append(text, at, brace);
    if (brace == format.size()) break;
    if (brace + 1 < format.size() && format[brace + 1] == format[brace]) {
      out.Append(text, brace, brace + 1);
      at = brace + 2;
      continue;
    }
    const size_t close = format.find_first_of("{}", brace + 1);
    if (format[brace] == '}' || close == std::string_view::npos || format[close] == '{') {
      return InvalidArgument("the braces of the format '{}' do not match", format);
    }
    const std::string_view field = format.substr(brace + 1, close - brace - 1);
    const size_t colon = std::min(field.find(':'), field.size());
    const std::string_view name = field.substr(0, colon);
    const std::string_view spec = field.substr(std::min(colon + 1, field.size()));
    if (name.find_first_of(".[!") != std::string_view::npos) {
      return Unimplemented("the field '{}' of a format is not supported", name);
    }
    size_t index = 0;
    const auto read = std::from_chars(name.data(), name.data() + name.size(), index);
    const bool number = read.ec == std::errc() && read.ptr == name.data() + name.size();
    const Value* value = nullptr;
    if (name.empty() || number) {
      if (name.empty()) index = automatic++;
      if (index < arguments.positional.size()) value = &arguments.positional[index];
    } else {
      for (const auto& [key, argument] : arguments.named) {
        if (key.view() == name) value = &argument;
      }
    }
    if (value == nullptr)
      return InvalidArgument("the format '{}' has no value for '{}'", format, name);
    ASSIGN_OR_RETURN(const Text formatted, FormatValue(*value, spec, machine));
    out.Append(formatted);
    at = close + 1;
  }
  return Value(std::move(out));
}

}  // namespace tandem::jinja
