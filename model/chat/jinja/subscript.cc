#include <algorithm>

#include "base/status.h"
#include "model/chat/jinja/characters.h"
#include "model/chat/jinja/loop.h"
#include "model/chat/jinja/methods.h"
#include "model/chat/jinja/operators.h"

namespace tandem::jinja {
namespace {

Value NoAttribute(const Value& object, std::string_view name) {
  if (object.is_none()) {
    return Value::MakeUndefined(fmt::format("'None' has no attribute '{}'", name));
  }
  return Value::MakeUndefined(
      fmt::format("'{} object' has no attribute '{}'", object.type(), name));
}

// The attribute that Python's getattr finds; nothing where it raises AttributeError.
absl::StatusOr<std::optional<Value>> FindAttribute(const Value& object, std::string_view name) {
  if (Loop* loop = object.loop()) {
    if (auto method = FindMethod(object, name)) return method;
    ASSIGN_OR_RETURN(Value value, loop->Attribute(name));
    return std::optional<Value>(std::move(value));
  }
  if (const Namespace* name_space = object.name_space()) {
    const Value* found = name_space->Find(name);
    return found == nullptr ? std::optional<Value>() : *found;
  }
  return FindMethod(object, name);
}

// The item obj[key] of Python; nothing where Python raises TypeError or LookupError.
absl::StatusOr<std::optional<Value>> FindItem(const Value& object, const Value& key,
                                              Machine& machine) {
  RETURN_IF_ERROR(machine.SpendOnReading(key));
  if (const Dict* dict = object.dict()) {
    const Value* found = dict->Find(key);
    return found == nullptr ? std::optional<Value>() : *found;
  }
  const auto index = key.integer();
  if (!index) return std::optional<Value>();
  if (const List* list = object.list()) {
    const bool indexed = list->kind == List::Kind::kList || list->kind == List::Kind::kTuple ||
                         list->kind == List::Kind::kRange;
    const auto size = static_cast<int64_t>(list->items.size());
    const int64_t at = *index < 0 ? *index + size : *index;
    if (!indexed || at < 0 || at >= size) return std::optional<Value>();
    return std::optional<Value>(list->items[static_cast<size_t>(at)]);
  }
  if (const Text* text = object.text()) {
    RETURN_IF_ERROR(machine.SpendBytes(text->size()));
    const auto size = static_cast<int64_t>(CountCharacters(text->view()));
    const int64_t at = *index < 0 ? *index + size : *index;
    if (at < 0 || at >= size) return std::optional<Value>();
    const size_t begin = OffsetOf(text->view(), static_cast<size_t>(at));
    return std::optional<Value>(
        Value(text->Slice(begin, begin + CharacterBytes(text->view()[begin]))));
  }
  return std::optional<Value>();
}

// The positions that a slice of `size` items takes, as Python's slice.indices().
struct Positions {
  int64_t start;
  int64_t stop;
  int64_t step;
};

absl::StatusOr<std::optional<int64_t>> BoundOf(const Value& value) {
  if (value.is_none()) return std::optional<int64_t>();
  if (const auto integer = value.integer()) return integer;
  if (value.undefined() != nullptr) return UndefinedError(*value.undefined());
  return InvalidArgument("a slice wants integers, not '{}'", value.type());
}

absl::StatusOr<Positions> PositionsOf(const SliceBounds& bounds, int64_t size) {
  ASSIGN_OR_RETURN(const auto step, BoundOf(bounds.step));
  ASSIGN_OR_RETURN(const auto start, BoundOf(bounds.start));
  ASSIGN_OR_RETURN(const auto stop, BoundOf(bounds.stop));
  Positions positions{0, 0, step.value_or(1)};
  if (positions.step == 0) return InvalidArgument("a slice's step must not be 0");
  // A step larger than the size takes one item, however large it is.
  positions.step = std::clamp<int64_t>(positions.step, -size - 1, size + 1);
  const bool forward = positions.step > 0;
  const int64_t low = forward ? 0 : -1;
  const int64_t high = forward ? size : size - 1;
  const auto place = [&](const std::optional<int64_t>& at, int64_t otherwise) {
    if (!at) return otherwise;
    return std::clamp(*at < 0 ? std::max(*at, -size - 1) + size : *at, low, high);
  };
  positions.start = place(start, forward ? low : high);
  positions.stop = place(stop, forward ? high : low);
  return positions;
}

absl::StatusOr<Value> SliceText(const Text& text, const SliceBounds& bounds, Machine& machine) {
  RETURN_IF_ERROR(machine.SpendBytes(text.size() * 2));
  const auto size = static_cast<int64_t>(CountCharacters(text.view()));
  ASSIGN_OR_RETURN(const Positions at, PositionsOf(bounds, size));
  if (at.step == 1) {
    const size_t begin = OffsetOf(text.view(), static_cast<size_t>(at.start));
    const size_t end = OffsetOf(text.view(), static_cast<size_t>(at.stop));
    return Value(text.Slice(begin, std::max(begin, end)));
  }
  RETURN_IF_ERROR(machine.Spend(text.size()));
  std::vector<size_t> offsets;
  for (size_t offset = 0; offset < text.size();) {
    offsets.push_back(offset);
    offset += CharacterBytes(text.view()[offset]);
  }
  Text slice;
  for (int64_t i = at.start; at.step > 0 ? i < at.stop : i > at.stop; i += at.step) {
    const size_t begin = offsets[static_cast<size_t>(i)];
    slice.Append(text, begin, begin + CharacterBytes(text.view()[begin]));
  }
  return Value(std::move(slice));
}

// A slice of a range, which is a range itself; only its printed form shows more than its items.
Value SliceRange(const List& range, const Positions& at, std::vector<Value> items) {
  const int64_t start = range.range[0];
  const int64_t step = range.range[2];
  auto slice = std::make_shared<List>();
  slice->kind = List::Kind::kRange;
  // Computes in unsigned integers, so that overflow is defined; only the printed form would show
  // it.
  const auto at_step = [](int64_t from, int64_t count, int64_t width) {
    return static_cast<int64_t>(static_cast<uint64_t>(from) +
                                static_cast<uint64_t>(count) * static_cast<uint64_t>(width));
  };
  slice->range = {at_step(start, at.start, step), at_step(start, at.stop, step),
                  at_step(0, at.step, step)};
  slice->items = std::move(items);
  return Value(std::shared_ptr<const List>(std::move(slice)));
}

}  // namespace

absl::Status UndefinedError(const Undefined& undefined) {
  return InvalidArgument("{}", undefined.reason);
}

absl::StatusOr<Value> GetAttribute(const Value& object, std::string_view name, Machine& machine) {
  if (object.undefined() != nullptr) return UndefinedError(*object.undefined());
  ASSIGN_OR_RETURN(auto attribute, FindAttribute(object, name));
  if (attribute) return *std::move(attribute);
  if (object.dict() != nullptr) {
    const Value* found = object.dict()->Find(name);
    if (found != nullptr) return *found;
  }
  RETURN_IF_ERROR(machine.SpendBytes(name.size()));
  return NoAttribute(object, name);
}

absl::StatusOr<Value> GetItem(const Value& object, const Value& key, Machine& machine) {
  if (object.undefined() != nullptr) return UndefinedError(*object.undefined());
  ASSIGN_OR_RETURN(auto item, FindItem(object, key, machine));
  if (item) return *std::move(item);
  if (const Text* name = key.text()) {
    ASSIGN_OR_RETURN(auto attribute, FindAttribute(object, name->view()));
    if (attribute) return *std::move(attribute);
    return NoAttribute(object, name->view());
  }
  return Value::MakeUndefined(fmt::format("'{} object' has no such element", object.type()));
}

absl::StatusOr<Value> GetSlice(const Value& object, const SliceBounds& bounds, Machine& machine) {
  if (object.undefined() != nullptr) return UndefinedError(*object.undefined());
  if (const Text* text = object.text()) return SliceText(*text, bounds, machine);
  const List* list = object.list();
  const bool sliced =
      list != nullptr && (list->kind == List::Kind::kList || list->kind == List::Kind::kTuple ||
                          list->kind == List::Kind::kRange);
  if (!sliced) return InvalidArgument("an object of type '{}' has no slices", object.type());
  ASSIGN_OR_RETURN(const Positions at,
                   PositionsOf(bounds, static_cast<int64_t>(list->items.size())));
  std::vector<Value> items;
  for (int64_t i = at.start; at.step > 0 ? i < at.stop : i > at.stop; i += at.step) {
    items.push_back(list->items[static_cast<size_t>(i)]);
  }
  RETURN_IF_ERROR(machine.Spend(items.size()));
  if (list->kind == List::Kind::kRange) return SliceRange(*list, at, std::move(items));
  return MakeList(std::move(items), list->kind);
}

}  // namespace tandem::jinja
