#include "model/chat/jinja/registry.h"

#include <array>

#include "base/status.h"
#include "model/chat/jinja/arguments.h"
#include "model/chat/jinja/characters.h"
#include "model/chat/jinja/operators.h"
#include "model/chat/jinja/print.h"
#include "model/chat/jinja/time_format.h"

namespace tandem::jinja {
namespace {

// The most items of a range that the sandbox of Jinja allows.
constexpr int64_t kMaxRange = 100000;

absl::StatusOr<Value> RangeFunction(Machine& machine, Arguments arguments) {
  if (!arguments.named.empty()) return InvalidArgument("range() takes no named arguments");
  if (arguments.positional.empty() || arguments.positional.size() > 3) {
    return InvalidArgument("range() takes 1 to 3 integers");
  }
  std::array<int64_t, 3> range = {0, 0, 1};
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    const Value& value = arguments.positional[i];
    const auto integer = value.integer();
    if (!integer) return InvalidArgument("range() wants integers, not '{}'", value.type());
    range[arguments.positional.size() == 1 ? 1 : i] = *integer;
  }
  const auto [start, stop, step] = range;
  if (step == 0) return InvalidArgument("range()'s step must not be 0");
  const bool empty = step > 0 ? start >= stop : start <= stop;
  const auto width = static_cast<long double>(stop) - static_cast<long double>(start);
  if (!empty && width / static_cast<long double>(step) > kMaxRange) {
    return InvalidArgument("range() has more than {} items", kMaxRange);
  }
  auto list = std::make_shared<List>();
  list->kind = List::Kind::kRange;
  list->range = range;
  if (!empty) {
    const auto count =
        static_cast<int64_t>((width + static_cast<long double>(step) + (step > 0 ? -1 : 1)) /
                             static_cast<long double>(step));
    RETURN_IF_ERROR(machine.Spend(static_cast<size_t>(count)));
    for (int64_t i = 0; i < count; ++i) list->items.emplace_back(start + i * step);
  }
  return Value(std::shared_ptr<const List>(std::move(list)));
}

// dict(...) and namespace(...) both take a dict, or a list of pairs, and named values.
absl::StatusOr<std::shared_ptr<Dict>> MakeDict(Machine& machine, Arguments arguments) {
  auto dict = std::make_shared<Dict>();
  if (arguments.positional.size() > 1) return InvalidArgument("dict() takes at most one dict");
  if (!arguments.positional.empty()) {
    const Value& source = arguments.positional[0];
    if (source.dict() != nullptr) {
      for (const auto& [key, value] : source.dict()->entries()) {
        RETURN_IF_ERROR(machine.SpendOnReading(key));
        RETURN_IF_ERROR(dict->Set(key, value));
      }
    } else {
      ASSIGN_OR_RETURN(const std::vector<Value> pairs, Iterate(source, machine));
      for (const Value& item : pairs) {
        ASSIGN_OR_RETURN(std::vector<Value> pair, Iterate(item, machine));
        if (pair.size() != 2) return InvalidArgument("dict() wants pairs");
        RETURN_IF_ERROR(machine.SpendOnReading(pair[0]));
        RETURN_IF_ERROR(dict->Set(std::move(pair[0]), std::move(pair[1])));
      }
    }
  }
  for (auto& [name, value] : arguments.named) {
    RETURN_IF_ERROR(dict->Set(Value(std::move(name)), std::move(value)));
  }
  RETURN_IF_ERROR(machine.Spend(dict->entries().size()));
  return dict;
}

absl::StatusOr<Value> DictFunction(Machine& machine, Arguments arguments) {
  ASSIGN_OR_RETURN(std::shared_ptr<Dict> dict, MakeDict(machine, std::move(arguments)));
  return Value(std::shared_ptr<const Dict>(std::move(dict)));
}

absl::StatusOr<Value> NamespaceFunction(Machine& machine, Arguments arguments) {
  ASSIGN_OR_RETURN(const std::shared_ptr<Dict> dict, MakeDict(machine, std::move(arguments)));
  auto name_space = std::make_shared<Namespace>();
  for (const auto& [key, value] : dict->entries()) {
    if (key.text() == nullptr || key.text()->view().starts_with('_')) {
      return InvalidArgument("a namespace has names that start with no underscore");
    }
    name_space->attributes.emplace_back(key.text()->bytes(), value);
  }
  return machine.MakeNamespace(std::move(name_space));
}

absl::StatusOr<Value> RaiseException(Machine& machine, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound,
                   Bound::To("raise_exception", {"message"}, 1, std::move(arguments)));
  ASSIGN_OR_RETURN(const Text text, Str(bound.Get(0), machine));
  return Raised(text.view());
}

absl::StatusOr<Value> StrftimeNow(Machine& machine, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound,
                   Bound::To("strftime_now", {"format"}, 1, std::move(arguments)));
  ASSIGN_OR_RETURN(const Text format, bound.String(0, "", machine));
  RETURN_IF_ERROR(machine.Spend(format.size()));
  ASSIGN_OR_RETURN(std::string text, FormatTime(format.view(), machine.now()));
  Text result(std::move(text));
  result.Mark(format.has_input());
  return Value(std::move(result));
}

constexpr FunctionEntry kFunctions[] = {
    {"range", RangeFunction},
    {"dict", DictFunction},
    {"namespace", NamespaceFunction},
    {"raise_exception", RaiseException},
    {"strftime_now", StrftimeNow},
    {"cycler", nullptr},
    {"joiner", nullptr},
    {"lipsum", nullptr},
};

}  // namespace

std::span<const FunctionEntry> Functions() { return kFunctions; }

const FilterEntry* FindFilter(std::string_view name) {
  for (const auto filters : {TextFilters(), FormatFilters(), NumberFilters(), SequenceFilters(),
                             SortFilters(), SelectFilters()}) {
    for (const FilterEntry& filter : filters) {
      if (filter.name == name) return &filter;
    }
  }
  return nullptr;
}

}  // namespace tandem::jinja
