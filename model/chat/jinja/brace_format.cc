#include <algorithm>
#include <charconv>

#include "base/status.h"
#include "model/chat/jinja/characters.h"
#include "model/chat/jinja/format_spec.h"
#include "model/chat/jinja/operators.h"
#include "model/chat/jinja/print.h"

namespace tandem::jinja {
namespace {

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
