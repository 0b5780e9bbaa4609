// The filters that write a value in a notation: HTML, a format of printf, JSON.
#include <algorithm>

#include "base/status.h"
#include "model/chat/jinja/arguments.h"
#include "model/chat/jinja/operators.h"
#include "model/chat/jinja/print.h"
#include "model/chat/jinja/registry.h"

namespace tandem::jinja {
namespace {

using FilterResult = absl::StatusOr<Value>;

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

constexpr FilterEntry kFormatFilters[] = {
    {"e", EscapeFilter},
    {"escape", EscapeFilter},
    {"format", FormatFilter},
    {"tojson", ToJsonFilter},
};

}  // namespace

std::span<const FilterEntry> FormatFilters() { return kFormatFilters; }

}  // namespace tandem::jinja
