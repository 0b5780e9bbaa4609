#include <algorithm>

#include "base/status.h"
#include "model/chat/jinja/arguments.h"
#include "model/chat/jinja/attribute_path.h"
#include "model/chat/jinja/methods.h"
#include "model/chat/jinja/operators.h"
#include "model/chat/jinja/print.h"
#include "model/chat/jinja/registry.h"

namespace tandem::jinja {
namespace {

using Filtered = absl::StatusOr<Value>;

Filtered LengthFilter(Machine& machine, const Value& value, Arguments arguments) {
  RETURN_IF_ERROR(NoArguments(std::move(arguments), "length"));
  RETURN_IF_ERROR(machine.SpendOnReading(value));
  ASSIGN_OR_RETURN(const int64_t length, Length(value));
  return Value(length);
}

Filtered ListFilter(Machine& machine, const Value& value, Arguments arguments) {
  RETURN_IF_ERROR(NoArguments(std::move(arguments), "list"));
  ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(value, machine));
  return MakeList(std::move(items));
}

Filtered ItemsFilter(Machine& machine, const Value& value, Arguments arguments) {
  RETURN_IF_ERROR(NoArguments(std::move(arguments), "items"));
  std::vector<Value> items;
  if (value.undefined() == nullptr) {
    if (value.dict() == nullptr)
      return InvalidArgument("items wants a dict, not '{}'", value.type());
    RETURN_IF_ERROR(machine.Spend(value.dict()->entries().size()));
    for (const auto& [key, item] : value.dict()->entries()) {
      ASSIGN_OR_RETURN(Value pair, MakeList({key, item}, List::Kind::kTuple));
      items.push_back(std::move(pair));
    }
  }
  return MakeList(std::move(items), List::Kind::kGenerator);
}

Filtered FirstFilter(Machine& machine, const Value& value, Arguments arguments) {
  RETURN_IF_ERROR(NoArguments(std::move(arguments), "first"));
  const List* list = value.list();
  if (list != nullptr && list->kind == List::Kind::kGenerator && !list->spent) {
    return Unimplemented("first of a generator is not supported: add |list");
  }
  ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(value, machine));
  if (!items.empty()) return items.front();
  return Value::MakeUndefined("No first item, sequence was empty.");
}

absl::Status NotReversible(const Value& value) {
  return InvalidArgument("an object of type '{}' cannot be reversed", value.type());
}

Filtered LastFilter(Machine& machine, const Value& value, Arguments arguments) {
  RETURN_IF_ERROR(NoArguments(std::move(arguments), "last"));
  const List* list = value.list();
  if (list != nullptr && list->kind == List::Kind::kGenerator) return NotReversible(value);
  ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(value, machine));
  if (!items.empty()) return items.back();
  return Value::MakeUndefined("No last item, sequence was empty.");
}

Filtered ReverseFilter(Machine& machine, const Value& value, Arguments arguments) {
  RETURN_IF_ERROR(NoArguments(std::move(arguments), "reverse"));
  if (value.text() != nullptr) {
    return GetSlice(value, {Value(), Value(), Value(int64_t{-1})}, machine);
  }
  const List* list = value.list();
  const bool makes_list = list != nullptr && list->kind == List::Kind::kGenerator;
  ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(value, machine));
  std::reverse(items.begin(), items.end());
  return MakeList(std::move(items), makes_list ? List::Kind::kList : List::Kind::kGenerator);
}

Filtered JoinFilter(Machine& machine, const Value& value, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound,
                   Bound::To("join", {"d", "attribute"}, 0, std::move(arguments)));
  ASSIGN_OR_RETURN(const AttributePath path, AttributePath::From(bound.Get(1), machine));
  Text separator;
  if (bound.Has(0)) {
    ASSIGN_OR_RETURN(separator, Str(bound.Get(0), machine));
  }
  ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(value, machine));
  std::vector<Text> texts;
  for (const Value& item : items) {
    ASSIGN_OR_RETURN(const Value part, path.Get(item, std::nullopt, machine));
    ASSIGN_OR_RETURN(Text text, Str(part, machine));
    texts.push_back(std::move(text));
  }
  return JoinTexts(separator, texts, machine);
}

Filtered SumFilter(Machine& machine, const Value& value, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound,
                   Bound::To("sum", {"attribute", "start"}, 0, std::move(arguments)));
  ASSIGN_OR_RETURN(const AttributePath path, AttributePath::From(bound.Get(0), machine));
  ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(value, machine));
  Value sum = bound.Has(1) ? bound.Get(1) : Value(int64_t{0});
  if (sum.text() != nullptr) return InvalidArgument("sum cannot add strings: use join");
  for (Value& item : items) {
    ASSIGN_OR_RETURN(const Value part, path.Get(std::move(item), std::nullopt, machine));
    ASSIGN_OR_RETURN(sum, Calculate(BinaryOp::kAdd, sum, part, machine));
  }
  return sum;
}

Filtered BatchFilter(Machine& machine, const Value& value, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound,
                   Bound::To("batch", {"linecount", "fill_with"}, 1, std::move(arguments)));
  ASSIGN_OR_RETURN(const int64_t count, bound.Integer(0, 1));
  if (count < 1) return InvalidArgument("batch wants at least 1 item in a row");
  ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(value, machine));
  std::vector<Value> rows;
  for (size_t begin = 0; begin < items.size();) {
    const size_t end = std::min(items.size(), begin + static_cast<size_t>(count));
    std::vector<Value> row(items.begin() + static_cast<int64_t>(begin),
                           items.begin() + static_cast<int64_t>(end));
    if (!bound.Get(1).is_none() && row.size() < static_cast<size_t>(count)) {
      RETURN_IF_ERROR(machine.Spend(static_cast<size_t>(count)));
      row.resize(static_cast<size_t>(count), bound.Get(1));
    }
    ASSIGN_OR_RETURN(Value list, MakeList(std::move(row)));
    rows.push_back(std::move(list));
    begin = end;
  }
  return MakeList(std::move(rows), List::Kind::kGenerator);
}

Filtered SliceFilter(Machine& machine, const Value& value, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound,
                   Bound::To("slice", {"slices", "fill_with"}, 1, std::move(arguments)));
  ASSIGN_OR_RETURN(const int64_t slices, bound.Integer(0, 1));
  if (slices < 1) return InvalidArgument("slice wants at least 1 slice");
  ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(value, machine));
  RETURN_IF_ERROR(machine.Spend(static_cast<size_t>(slices)));
  const auto size = static_cast<int64_t>(items.size());
  std::vector<Value> rows;
  int64_t begin = 0;
  for (int64_t i = 0; i < slices; ++i) {
    const bool longer = i < size % slices;
    const int64_t end = begin + size / slices + (longer ? 1 : 0);
    std::vector<Value> row(items.begin() + begin, items.begin() + end);
    if (!longer && !bound.Get(1).is_none()) row.push_back(bound.Get(1));
    ASSIGN_OR_RETURN(Value list, MakeList(std::move(row)));
    rows.push_back(std::move(list));
    begin = end;
  }
  return MakeList(std::move(rows), List::Kind::kGenerator);
}

Filtered AttrFilter(Machine& machine, const Value& value, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::To("attr", {"name"}, 1, std::move(arguments)));
  ASSIGN_OR_RETURN(const Text name, bound.String(0, "", machine));
  if (value.undefined() != nullptr) return UndefinedError(*value.undefined());
  // The keys of a dict are no attributes for the filter attr.
  if (value.dict() != nullptr) {
    if (auto method = FindMethod(value, name.view())) return *std::move(method);
    return Value::MakeUndefined(fmt::format("'dict object' has no attribute '{}'", name.view()));
  }
  return GetAttribute(value, name.view(), machine);
}

constexpr FilterEntry kSequenceFilters[] = {
    {"attr", AttrFilter},       {"batch", BatchFilter},   {"count", LengthFilter},
    {"first", FirstFilter},     {"items", ItemsFilter},   {"join", JoinFilter},
    {"last", LastFilter},       {"length", LengthFilter}, {"list", ListFilter},
    {"reverse", ReverseFilter}, {"slice", SliceFilter},   {"sum", SumFilter},
};

}  // namespace

std::span<const FilterEntry> SequenceFilters() { return kSequenceFilters; }

}  // namespace tandem::jinja
