#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <limits>

#include "base/status.h"
#include "model/chat/jinja/arguments.h"
#include "model/chat/jinja/characters.h"
#include "model/chat/jinja/methods.h"
#include "model/chat/jinja/numbers.h"
#include "model/chat/jinja/operators.h"
#include "model/chat/jinja/print.h"
#include "model/chat/jinja/registry.h"

namespace tandem::jinja {
namespace {

using FilterResult = absl::StatusOr<Value>;

absl::Status NoArguments(Arguments arguments) {
  return Bound::To("this filter", {}, 0, std::move(arguments)).status();
}

template <std::string (*kChange)(std::string_view)>
FilterResult Recase(Machine& machine, const Value& value, Arguments arguments) {
  RETURN_IF_ERROR(NoArguments(std::move(arguments)));
  ASSIGN_OR_RETURN(const Text text, Str(value, machine));
  Text changed(kChange(text.view()));
  changed.Mark(text.has_input());
  return Value(std::move(changed));
}

// Unlike str.title(), Jinja's title starts words only after white space, hyphens and brackets.
std::string TitleWords(std::string_view text) {
  std::string out;
  size_t begin = 0;
  const auto finish = [&](size_t end) {
    if (begin == end) return;
    size_t rest = begin;
    NextCharacter(text, rest);
    out += Upper(text.substr(begin, rest - begin));
    out += Lower(text.substr(rest, end - rest));
  };
  for (size_t at = 0; at < text.size();) {
    const size_t start = at;
    const int32_t c = NextCharacter(text, at);
    if (!IsSpace(c) && c != '-' && c != '(' && c != '{' && c != '[' && c != '<') continue;
    finish(start);
    out.append(text.substr(start, at - start));
    begin = at;
  }
  finish(text.size());
  return out;
}

FilterResult StringFilter(Machine& machine, const Value& value, Arguments arguments) {
  RETURN_IF_ERROR(NoArguments(std::move(arguments)));
  ASSIGN_OR_RETURN(Text text, Str(value, machine));
  return Value(std::move(text));
}

FilterResult TrimFilter(Machine& machine, const Value& value, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::To("trim", {"chars"}, 0, std::move(arguments)));
  ASSIGN_OR_RETURN(const Text text, Str(value, machine));
  Trimmed trimmed;
  if (bound.Get(0).is_none()) {
    trimmed = Trim(text.view(), nullptr, Side::kBoth);
  } else {
    ASSIGN_OR_RETURN(const Text chars, bound.String(0, "", machine));
    RETURN_IF_ERROR(machine.SpendBytes(text.size() * chars.size()));
    const std::string_view view = chars.view();
    trimmed = Trim(text.view(), &view, Side::kBoth);
  }
  return Value(text.Slice(trimmed.begin, trimmed.end));
}

FilterResult ReplaceFilter(Machine& machine, const Value& value, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound,
                   Bound::To("replace", {"old", "new", "count"}, 2, std::move(arguments)));
  ASSIGN_OR_RETURN(const Text text, Str(value, machine));
  ASSIGN_OR_RETURN(const Text old, Str(bound.Get(0), machine));
  ASSIGN_OR_RETURN(const Text replacement, Str(bound.Get(1), machine));
  int64_t count = -1;
  if (!bound.Get(2).is_none()) {
    ASSIGN_OR_RETURN(count, bound.Integer(2, -1));
  }
  ASSIGN_OR_RETURN(Text replaced, ReplaceText(text, old, replacement, count, machine));
  return Value(std::move(replaced));
}

FilterResult IndentFilter(Machine& machine, const Value& value, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound,
                   Bound::To("indent", {"width", "first", "blank"}, 0, std::move(arguments)));
  if (value.undefined() != nullptr) return UndefinedError(*value.undefined());
  if (value.text() == nullptr)
    return InvalidArgument("indent wants a string, not '{}'", value.type());
  Text indentation;
  if (bound.Get(0).text() != nullptr) {
    indentation = *bound.Get(0).text();
  } else {
    ASSIGN_OR_RETURN(const int64_t width, bound.Integer(0, 4));
    RETURN_IF_ERROR(machine.Spend(static_cast<size_t>(std::max<int64_t>(width, 0))));
    indentation = Text(std::string(static_cast<size_t>(std::max<int64_t>(width, 0)), ' '));
  }
  RETURN_IF_ERROR(machine.SpendBytes(value.text()->size() * 2));
  Text text = *value.text();
  text.Append("\n");
  const std::vector<Text> lines = SplitLines(text, false);
  RETURN_IF_ERROR(machine.Spend(lines.size()));
  RETURN_IF_ERROR(machine.SpendBytes(lines.size() * indentation.size()));
  Text out;
  if (bound.Truth(1, false)) out.Append(indentation);
  for (size_t i = 0; i < lines.size(); ++i) {
    if (i > 0) out.Append("\n");
    if (i > 0 && (bound.Truth(2, false) || !lines[i].empty())) out.Append(indentation);
    out.Append(lines[i]);
  }
  return Value(std::move(out));
}

FilterResult CenterFilter(Machine& machine, const Value& value, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::To("center", {"width"}, 0, std::move(arguments)));
  ASSIGN_OR_RETURN(const Text text, Str(value, machine));
  ASSIGN_OR_RETURN(const int64_t width, bound.Integer(0, 80));
  ASSIGN_OR_RETURN(Text centered, CenterText(text, width, Text(" "), machine));
  return Value(std::move(centered));
}

FilterResult TruncateFilter(Machine& machine, const Value& value, Arguments arguments) {
  ASSIGN_OR_RETURN(
      const Bound bound,
      Bound::To("truncate", {"length", "killwords", "end", "leeway"}, 0, std::move(arguments)));
  ASSIGN_OR_RETURN(const int64_t length, bound.Integer(0, 255));
  ASSIGN_OR_RETURN(const Text end, bound.String(2, "...", machine));
  int64_t leeway = 5;
  if (!bound.Get(3).is_none()) {
    ASSIGN_OR_RETURN(leeway, bound.Integer(3, 5));
  }
  if (value.text() != nullptr) RETURN_IF_ERROR(machine.SpendBytes(value.text()->size() * 2));
  const auto end_length = static_cast<int64_t>(CountCharacters(end.view()));
  if (length < end_length || leeway < 0) {
    return InvalidArgument("truncate wants a length of at least {} and a leeway of at least 0",
                           end_length);
  }
  ASSIGN_OR_RETURN(const int64_t whole, Length(value));
  if (whole - leeway <= length) return value;
  // truncate leaves lists and dicts that are short enough as they are, as in jinja2.
  if (value.text() == nullptr) return InvalidArgument("truncate wants a string");
  const Text& text = *value.text();
  Text out = text.Slice(0, OffsetOf(text.view(), static_cast<size_t>(length - end_length)));
  if (!bound.Truth(1, false)) {
    const size_t space = out.view().rfind(' ');
    if (space != std::string_view::npos) out.Resize(space);
  }
  out.Append(end);
  return Value(std::move(out));
}

FilterResult WordCountFilter(Machine& machine, const Value& value, Arguments arguments) {
  RETURN_IF_ERROR(NoArguments(std::move(arguments)));
  ASSIGN_OR_RETURN(const Text text, Str(value, machine));
  int64_t words = 0;
  bool inside = false;
  for (size_t at = 0; at < text.size();) {
    const bool word = IsWordCharacter(NextCharacter(text.view(), at));
    words += word && !inside ? 1 : 0;
    inside = word;
  }
  return Value(words);
}

FilterResult EscapeFilter(Machine& machine, const Value& value, Arguments arguments) {
  RETURN_IF_ERROR(NoArguments(std::move(arguments)));
  ASSIGN_OR_RETURN(const Text text, Str(value, machine));
  RETURN_IF_ERROR(machine.SpendBytes(text.size() * 5));
  Text out;
  size_t begin = 0;
  for (size_t at = 0; at < text.size(); ++at) {
    const char c = text.view()[at];
    const std::string_view entity = c == '&'    ? "&amp;"
                                    : c == '<'  ? "&lt;"
                                    : c == '>'  ? "&gt;"
                                    : c == '"'  ? "&#34;"
                                    : c == '\'' ? "&#39;"
                                                : "";
    if (entity.empty()) continue;
    out.Append(text, begin, at);
    out.Append(entity);
    begin = at + 1;
  }
  out.Append(text, begin, text.size());
  return Value(std::move(out));
}

FilterResult FormatFilter(Machine& machine, const Value& value, Arguments arguments) {
  ASSIGN_OR_RETURN(const Text text, Str(value, machine));
  if (!arguments.named.empty() && !arguments.positional.empty()) {
    return InvalidArgument("format takes either named arguments or others");
  }
  if (arguments.named.empty()) {
    ASSIGN_OR_RETURN(const Value row,
                     MakeList(std::move(arguments.positional), List::Kind::kTuple));
    return FormatPercent(text, row, machine);
  }
  auto dict = std::make_shared<Dict>();
  for (auto& [name, item] : arguments.named) {
    RETURN_IF_ERROR(dict->Set(Value(std::move(name)), std::move(item)));
  }
  return FormatPercent(text, Value(std::shared_ptr<const Dict>(std::move(dict))), machine);
}

absl::StatusOr<std::string> SeparatorAt(const Value& pair, size_t i) {
  const List* list = pair.list();
  if (list == nullptr || list->items.size() != 2 || list->items[i].text() == nullptr) {
    return InvalidArgument("tojson wants two strings as separators");
  }
  return list->items[i].text()->bytes();
}

FilterResult ToJsonFilter(Machine& machine, const Value& value, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound,
                   Bound::To("tojson", {"ensure_ascii", "indent", "separators", "sort_keys"}, 0,
                             std::move(arguments)));
  constexpr int64_t kMaxIndent = 100;
  JsonStyle style;
  style.ensure_ascii = bound.Truth(0, false);
  style.sort_keys = bound.Truth(3, false);
  if (bound.Get(1).text() != nullptr) {
    style.indent = bound.Get(1).text()->bytes();
    RETURN_IF_ERROR(machine.SpendBytes(style.indent->size()));
    if (style.indent->size() > static_cast<size_t>(kMaxIndent)) {
      return InvalidArgument("tojson indents by at most {}", kMaxIndent);
    }
  } else if (!bound.Get(1).is_none()) {
    ASSIGN_OR_RETURN(const int64_t indent, bound.Integer(1, 0));
    if (indent > kMaxIndent) return InvalidArgument("tojson indents by at most {}", kMaxIndent);
    style.indent = std::string(static_cast<size_t>(std::max<int64_t>(indent, 0)), ' ');
  }
  if (style.indent) style.item_separator = ",";
  if (!bound.Get(2).is_none()) {
    ASSIGN_OR_RETURN(style.item_separator, SeparatorAt(bound.Get(2), 0));
    ASSIGN_OR_RETURN(style.key_separator, SeparatorAt(bound.Get(2), 1));
  }
  ASSIGN_OR_RETURN(Text text, ToJson(value, style, machine));
  return Value(std::move(text));
}

FilterResult IntFilter(Machine& machine, const Value& value, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound,
                   Bound::To("int", {"default", "base"}, 0, std::move(arguments)));
  ASSIGN_OR_RETURN(const int64_t base, bound.Integer(1, 10));
  const Value otherwise = bound.Has(0) ? bound.Get(0) : Value(int64_t{0});
  if (const auto integer = value.integer()) return Value(*integer);
  double real = value.real() != nullptr ? *value.real() : std::nan("");
  if (const Text* text = value.text()) {
    RETURN_IF_ERROR(machine.SpendBytes(text->size()));
    ASSIGN_OR_RETURN(const auto integer, ParseInteger(text->view(), base));
    if (integer) return Value(*integer);
    real = ParseReal(text->view()).value_or(std::nan(""));
  }
  if (value.undefined() != nullptr) return UndefinedError(*value.undefined());
  if (!std::isfinite(real)) return otherwise;
  if (std::abs(real) >= 9.2e18) return InvalidArgument("{} does not fit into 64 bits", real);
  return Value(static_cast<int64_t>(real));
}

FilterResult FloatFilter(Machine& machine, const Value& value, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::To("float", {"default"}, 0, std::move(arguments)));
  if (value.undefined() != nullptr) return UndefinedError(*value.undefined());
  std::optional<double> real = value.number();
  if (value.text() != nullptr) {
    RETURN_IF_ERROR(machine.SpendBytes(value.text()->size()));
    real = ParseReal(value.text()->view());
  }
  if (real) return Value(*real);
  return bound.Has(0) ? bound.Get(0) : Value(0.0);
}

FilterResult AbsFilter(Machine&, const Value& value, Arguments arguments) {
  RETURN_IF_ERROR(NoArguments(std::move(arguments)));
  if (value.undefined() != nullptr) return UndefinedError(*value.undefined());
  if (const auto integer = value.integer()) {
    return *integer < 0 ? Negate(value) : FilterResult(Value(*integer));
  }
  if (const double* real = value.real()) return Value(std::abs(*real));
  return InvalidArgument("abs wants a number, not '{}'", value.type());
}

FilterResult RoundFilter(Machine& machine, const Value& value, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound,
                   Bound::To("round", {"precision", "method"}, 0, std::move(arguments)));
  ASSIGN_OR_RETURN(const int64_t precision, bound.Integer(0, 0));
  ASSIGN_OR_RETURN(const Text method, bound.String(1, "common", machine));
  if (value.undefined() != nullptr) return UndefinedError(*value.undefined());
  if (!value.number()) return InvalidArgument("round wants a number, not '{}'", value.type());
  if (precision < 0 || precision > 300) {
    return InvalidArgument("round to {} digits is not supported", precision);
  }
  if (method.view() == "common") {
    if (const auto integer = value.integer()) return Value(*integer);
    if (!std::isfinite(*value.real())) return value;
    return Value(std::strtod(fmt::format("{:.{}f}", *value.real(), precision).c_str(), nullptr));
  }
  if (method.view() != "ceil" && method.view() != "floor") {
    return InvalidArgument("round's method is common, ceil or floor");
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = *value.number() * scale;
  return Value((method.view() == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

FilterResult DefaultFilter(Machine&, const Value& value, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound,
                   Bound::To("default", {"default_value", "boolean"}, 0, std::move(arguments)));
  const bool replaced = value.undefined() != nullptr || (bound.Truth(1, false) && !IsTrue(value));
  if (!replaced) return value;
  return bound.Has(0) ? bound.Get(0) : Value(Text());
}

constexpr FilterEntry kTextFilters[] = {
    {"abs", AbsFilter},
    {"capitalize", Recase<Capitalize>},
    {"center", CenterFilter},
    {"d", DefaultFilter},
    {"default", DefaultFilter},
    {"e", EscapeFilter},
    {"escape", EscapeFilter},
    {"float", FloatFilter},
    {"format", FormatFilter},
    {"indent", IndentFilter},
    {"int", IntFilter},
    {"lower", Recase<Lower>},
    {"replace", ReplaceFilter},
    {"round", RoundFilter},
    // Without automatic escaping, a safe string is a string.
    {"safe", StringFilter},
    {"string", StringFilter},
    {"title", Recase<TitleWords>},
    {"tojson", ToJsonFilter},
    {"trim", TrimFilter},
    {"truncate", TruncateFilter},
    {"upper", Recase<Upper>},
    {"wordcount", WordCountFilter},
};

}  // namespace

std::span<const FilterEntry> TextFilters() { return kTextFilters; }

}  // namespace tandem::jinja
