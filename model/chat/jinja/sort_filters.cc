// The filters that compare items by a key: they sort, group, choose, and drop doubles.
#include <algorithm>

#include "base/status.h"
#include "model/chat/jinja/arguments.h"
#include "model/chat/jinja/attribute_path.h"
#include "model/chat/jinja/characters.h"
#include "model/chat/jinja/operators.h"
#include "model/chat/jinja/registry.h"

namespace tandem::jinja {
namespace {

using Filtered = absl::StatusOr<Value>;

Filtered IgnoreCase(const Value& value, Machine& machine) {
  const Text* text = value.text();
  if (text == nullptr) return value;
  RETURN_IF_ERROR(machine.SpendBytes(text->size()));
  Text lower(Lower(text->view()));
  lower.Mark(text->has_input());
  return Value(std::move(lower));
}

struct Keyed {
  std::vector<Value> keys;
  Value item;
};

// Whether items are sorted by one key or several. Several are compared as Python compares lists:
// keys that are equal need no order.
enum class KeysAre : uint8_t { kOne, kList };

absl::StatusOr<bool> KeysBefore(const Keyed& a, const Keyed& b, KeysAre keys, Machine& machine) {
  if (keys == KeysAre::kOne) return IsLess(a.keys[0], b.keys[0], machine);
  for (size_t i = 0; i < a.keys.size(); ++i) {
    ASSIGN_OR_RETURN(const bool equal, AreEqual(a.keys[i], b.keys[i], machine));
    if (!equal) return IsLess(a.keys[i], b.keys[i], machine);
  }
  return false;
}

// A stable sort, which also goes backwards without turning equal items around. A merge sort of our
// own: std::stable_sort requires an order even where comparing fails.
absl::Status SortKeyed(std::vector<Keyed>& items, bool reverse, KeysAre keys, Machine& machine) {
  std::vector<Keyed> buffer(items.size());
  for (size_t width = 1; width < items.size(); width *= 2) {
    for (size_t begin = 0; begin < items.size(); begin += 2 * width) {
      const size_t middle = std::min(begin + width, items.size());
      const size_t end = std::min(begin + 2 * width, items.size());
      size_t left = begin;
      size_t right = middle;
      for (size_t at = begin; at < end; ++at) {
        bool take_right = left == middle;
        if (!take_right && right < end) {
          const Keyed& first = items[reverse ? left : right];
          const Keyed& second = items[reverse ? right : left];
          ASSIGN_OR_RETURN(take_right, KeysBefore(first, second, keys, machine));
        }
        buffer[at] = std::move(items[take_right ? right++ : left++]);
      }
    }
    items.swap(buffer);
  }
  return absl::OkStatus();
}

absl::StatusOr<std::vector<Keyed>> KeyedItems(std::vector<Value> items,
                                              const std::vector<AttributePath>& paths,
                                              bool case_sensitive,
                                              const std::optional<Value>& otherwise,
                                              Machine& machine) {
  std::vector<Keyed> keyed;
  for (Value& item : items) {
    Keyed one{{}, item};
    for (const AttributePath& path : paths) {
      ASSIGN_OR_RETURN(Value key, path.Get(item, otherwise, machine));
      if (!case_sensitive) {
        ASSIGN_OR_RETURN(key, IgnoreCase(key, machine));
      }
      one.keys.push_back(std::move(key));
    }
    keyed.push_back(std::move(one));
  }
  return keyed;
}

Filtered SortFilter(Machine& machine, const Value& value, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::To("sort", {"reverse", "case_sensitive", "attribute"},
                                                0, std::move(arguments)));
  ASSIGN_OR_RETURN(const auto paths, AttributePath::ListFrom(bound.Get(2), machine));
  ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(value, machine));
  ASSIGN_OR_RETURN(std::vector<Keyed> keyed,
                   KeyedItems(std::move(items), paths, bound.Truth(1, false), {}, machine));
  RETURN_IF_ERROR(SortKeyed(keyed, bound.Truth(0, false), KeysAre::kList, machine));
  std::vector<Value> sorted;
  for (Keyed& one : keyed) sorted.push_back(std::move(one.item));
  return MakeList(std::move(sorted));
}

Filtered DictSortFilter(Machine& machine, const Value& value, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::To("dictsort", {"case_sensitive", "by", "reverse"}, 0,
                                                std::move(arguments)));
  ASSIGN_OR_RETURN(const Text by, bound.String(1, "key", machine));
  if (by.view() != "key" && by.view() != "value") {
    return InvalidArgument("dictsort sorts by 'key' or 'value'");
  }
  if (value.undefined() != nullptr) return UndefinedError(*value.undefined());
  if (value.dict() == nullptr) {
    return InvalidArgument("dictsort wants a dict, not '{}'", value.type());
  }
  std::vector<Keyed> keyed;
  RETURN_IF_ERROR(machine.Spend(value.dict()->entries().size()));
  for (const auto& [key, item] : value.dict()->entries()) {
    ASSIGN_OR_RETURN(Value pair, MakeList({key, item}, List::Kind::kTuple));
    Value sorted_by = by.view() == "key" ? key : item;
    if (!bound.Truth(0, false)) {
      ASSIGN_OR_RETURN(sorted_by, IgnoreCase(sorted_by, machine));
    }
    keyed.push_back({{std::move(sorted_by)}, std::move(pair)});
  }
  RETURN_IF_ERROR(SortKeyed(keyed, bound.Truth(2, false), KeysAre::kOne, machine));
  std::vector<Value> sorted;
  for (Keyed& one : keyed) sorted.push_back(std::move(one.item));
  return MakeList(std::move(sorted));
}

Filtered GroupByFilter(Machine& machine, const Value& value, Arguments arguments) {
  ASSIGN_OR_RETURN(
      const Bound bound,
      Bound::To("groupby", {"attribute", "default", "case_sensitive"}, 1, std::move(arguments)));
  ASSIGN_OR_RETURN(const AttributePath path, AttributePath::From(bound.Get(0), machine));
  std::optional<Value> otherwise;
  if (!bound.Get(1).is_none()) otherwise = bound.Get(1);
  ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(value, machine));
  ASSIGN_OR_RETURN(std::vector<Keyed> keyed,
                   KeyedItems(std::move(items), {path}, bound.Truth(2, false), otherwise, machine));
  RETURN_IF_ERROR(SortKeyed(keyed, false, KeysAre::kOne, machine));
  std::vector<Value> groups;
  for (size_t begin = 0; begin < keyed.size();) {
    std::vector<Value> members;
    size_t end = begin;
    for (; end < keyed.size(); ++end) {
      ASSIGN_OR_RETURN(const bool same,
                       AreEqual(keyed[begin].keys[0], keyed[end].keys[0], machine));
      if (!same) break;
      members.push_back(keyed[end].item);
    }
    ASSIGN_OR_RETURN(Value key, path.Get(keyed[begin].item, otherwise, machine));
    ASSIGN_OR_RETURN(Value list, MakeList(std::move(members)));
    ASSIGN_OR_RETURN(Value group, MakeList({std::move(key), std::move(list)}, List::Kind::kTuple));
    groups.push_back(std::move(group));
    begin = end;
  }
  return MakeList(std::move(groups));
}

Filtered UniqueFilter(Machine& machine, const Value& value, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound,
                   Bound::To("unique", {"case_sensitive", "attribute"}, 0, std::move(arguments)));
  ASSIGN_OR_RETURN(const AttributePath path, AttributePath::From(bound.Get(1), machine));
  ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(value, machine));
  Dict seen;
  std::vector<Value> kept;
  for (Value& item : items) {
    ASSIGN_OR_RETURN(Value key, path.Get(item, std::nullopt, machine));
    if (!bound.Truth(0, false)) {
      ASSIGN_OR_RETURN(key, IgnoreCase(key, machine));
    }
    RETURN_IF_ERROR(machine.SpendOnReading(key));
    if (seen.Find(key) != nullptr) continue;
    RETURN_IF_ERROR(seen.Set(std::move(key), Value(true)));
    kept.push_back(std::move(item));
  }
  return MakeList(std::move(kept), List::Kind::kGenerator);
}

enum class Extreme : uint8_t { kLeast, kMost };

template <Extreme kExtreme>
Filtered ExtremeFilter(Machine& machine, const Value& value, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::To("min and max", {"case_sensitive", "attribute"}, 0,
                                                std::move(arguments)));
  ASSIGN_OR_RETURN(const AttributePath path, AttributePath::From(bound.Get(1), machine));
  ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(value, machine));
  if (items.empty()) return Value::MakeUndefined("No aggregated item, sequence was empty.");
  ASSIGN_OR_RETURN(const std::vector<Keyed> keyed,
                   KeyedItems(std::move(items), {path}, bound.Truth(0, false), {}, machine));
  size_t best = 0;
  for (size_t i = 1; i < keyed.size(); ++i) {
    const Value& a = keyed[i].keys[0];
    const Value& b = keyed[best].keys[0];
    ASSIGN_OR_RETURN(const bool better,
                     kExtreme == Extreme::kLeast ? IsLess(a, b, machine) : IsLess(b, a, machine));
    if (better) best = i;
  }
  return keyed[best].item;
}

constexpr FilterEntry kSortFilters[] = {
    {"dictsort", DictSortFilter},
    {"groupby", GroupByFilter},
    {"max", ExtremeFilter<Extreme::kMost>},
    {"min", ExtremeFilter<Extreme::kLeast>},
    {"sort", SortFilter},
    {"unique", UniqueFilter},
};

}  // namespace

std::span<const FilterEntry> SortFilters() { return kSortFilters; }

}  // namespace tandem::jinja
