#include <algorithm>

#include "base/status.h"
#include "model/chat/jinja/arguments.h"
#include "model/chat/jinja/characters.h"
#include "model/chat/jinja/methods.h"
#include "model/chat/jinja/operators.h"
#include "model/chat/jinja/print.h"
#include "model/chat/jinja/registry.h"

namespace tandem::jinja {
namespace {

using FilterResult = absl::StatusOr<Value>;

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

FilterResult DefaultFilter(Machine&, const Value& value, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound,
                   Bound::To("default", {"default_value", "boolean"}, 0, std::move(arguments)));
  const bool replaced = value.undefined() != nullptr || (bound.Truth(1, false) && !IsTrue(value));
  if (!replaced) return value;
  return bound.Has(0) ? bound.Get(0) : Value(Text());
}

constexpr FilterEntry kTextFilters[] = {
    {"capitalize", Recase<Capitalize>},
    {"center", CenterFilter},
    {"d", DefaultFilter},
    {"default", DefaultFilter},
    {"indent", IndentFilter},
    {"lower", Recase<Lower>},
    {"replace", ReplaceFilter},
    // Without automatic escaping, a safe string is a string.
    {"safe", StringFilter},
    {"string", StringFilter},
    {"title", Recase<TitleWords>},
    {"trim", TrimFilter},
    {"truncate", TruncateFilter},
    {"upper", Recase<Upper>},
    {"wordcount", WordCountFilter},
};

}  // namespace

std::span<const FilterEntry> TextFilters() { return kTextFilters; }

}  // namespace tandem::jinja
