#include <algorithm>
#include <utility>

#include "base/status.h"
#include "model/chat/jinja/characters.h"
#include "model/chat/jinja/operators.h"

namespace tandem::jinja {
namespace {

// Whether Python takes the value as a key of a dict. This costs steps, because a tuple may hold
// another one many times.
absl::StatusOr<bool> IsHashable(const Value& value, Machine& machine) {
  if (value.dict() != nullptr) return false;
  const List* const list = value.list();
  if (list == nullptr) return true;
  if (list->kind != List::Kind::kTuple) return false;
  RETURN_IF_ERROR(machine.Spend(list->items.size()));
  for (const Value& item : list->items) {
    ASSIGN_OR_RETURN(const bool hashable, IsHashable(item, machine));
    if (!hashable) return false;
  }
  return true;
}

}  // namespace

bool IsSequence(const Value& value) {
  const List* list = value.list();
  return value.text() != nullptr ||
         (list != nullptr && (list->kind == List::Kind::kList || list->kind == List::Kind::kTuple));
}

bool HaveSameKind(const Value& left, const Value& right) {
  return left.list() != nullptr && right.list() != nullptr && IsSequence(left) &&
         left.list()->kind == right.list()->kind;
}

absl::StatusOr<bool> Contains(const Value& container, const Value& item, Machine& machine) {
  if (const Text* text = container.text()) {
    if (item.undefined() != nullptr || item.text() == nullptr) {
      return InvalidArgument("'in' of a string wants a string, not '{}'", item.type());
    }
    RETURN_IF_ERROR(machine.SpendBytes(text->size() + item.text()->size()));
    return FindText(text->view(), item.text()->view()) != std::string_view::npos;
  }
  if (const Dict* dict = container.dict()) {
    RETURN_IF_ERROR(machine.SpendOnReading(item));
    ASSIGN_OR_RETURN(const bool hashable, IsHashable(item, machine));
    if (!hashable) {
      return InvalidArgument("a {} cannot be the key of a dict", item.type());
    }
    return dict->Find(item) != nullptr;
  }
  ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(container, machine));
  for (const Value& candidate : items) {
    ASSIGN_OR_RETURN(const bool equal, AreEqual(candidate, item, machine));
    if (equal) return true;
  }
  return false;
}

absl::StatusOr<int64_t> Length(const Value& value) {
  if (value.undefined() != nullptr) return 0;
  if (const Text* text = value.text()) return static_cast<int64_t>(CountCharacters(text->view()));
  if (const List* list = value.list(); list && list->kind != List::Kind::kGenerator) {
    return static_cast<int64_t>(list->items.size());
  }
  if (const Dict* dict = value.dict()) return static_cast<int64_t>(dict->entries().size());
  return InvalidArgument("an object of type '{}' has no length", value.type());
}

bool IsIterable(const Value& value) {
  return value.undefined() != nullptr || value.text() != nullptr || value.list() != nullptr ||
         value.dict() != nullptr || value.loop() != nullptr;
}

absl::StatusOr<std::vector<Value>> Iterate(const Value& value, Machine& machine) {
  std::vector<Value> items;
  if (value.undefined() != nullptr) return items;
  if (const List* list = value.list()) {
    if (list->kind == List::Kind::kGenerator && std::exchange(list->spent, true)) return items;
    RETURN_IF_ERROR(machine.Spend(list->items.size()));
    return list->items;
  }
  if (const Dict* dict = value.dict()) {
    RETURN_IF_ERROR(machine.Spend(dict->entries().size()));
    for (const auto& entry : dict->entries()) items.push_back(entry.key);
    return items;
  }
  if (const Text* text = value.text()) {
    RETURN_IF_ERROR(machine.Spend(text->size()));
    for (size_t at = 0; at < text->size();) {
      const size_t begin = at;
      at += CharacterBytes(text->view()[at]);
      items.emplace_back(text->Slice(begin, at));
    }
    return items;
  }
  return InvalidArgument("an object of type '{}' is not iterable", value.type());
}

}  // namespace tandem::jinja
