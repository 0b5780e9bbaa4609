#include "model/chat/jinja/methods.h"

#include <algorithm>
#include <array>

#include "base/status.h"
#include "model/chat/jinja/arguments.h"
#include "model/chat/jinja/loop.h"
#include "model/chat/jinja/operators.h"

namespace tandem::jinja {
namespace {

absl::StatusOr<Value> DictView(const Value& self, List::Kind kind, Arguments arguments) {
  RETURN_IF_ERROR(Bound::To("dict view", {}, 0, std::move(arguments)).status());
  std::vector<Value> items;
  for (const auto& [key, value] : self.dict()->entries()) {
    if (kind == List::Kind::kItems) {
      ASSIGN_OR_RETURN(Value pair, MakeList({key, value}, List::Kind::kTuple));
      items.push_back(std::move(pair));
    } else {
      items.push_back(kind == List::Kind::kKeys ? key : value);
    }
  }
  return MakeList(std::move(items), kind);
}

absl::StatusOr<Value> DictItems(Machine& machine, const Value& self, Arguments arguments) {
  RETURN_IF_ERROR(machine.Spend(self.dict()->entries().size()));
  return DictView(self, List::Kind::kItems, std::move(arguments));
}
absl::StatusOr<Value> DictKeys(Machine& machine, const Value& self, Arguments arguments) {
  RETURN_IF_ERROR(machine.Spend(self.dict()->entries().size()));
  return DictView(self, List::Kind::kKeys, std::move(arguments));
}
absl::StatusOr<Value> DictValues(Machine& machine, const Value& self, Arguments arguments) {
  RETURN_IF_ERROR(machine.Spend(self.dict()->entries().size()));
  return DictView(self, List::Kind::kValues, std::move(arguments));
}
absl::StatusOr<Value> DictGet(Machine& machine, const Value& self, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound,
                   Bound::To("get", {"key", "default"}, 1, std::move(arguments)));
  RETURN_IF_ERROR(machine.SpendOnReading(bound.Get(0)));
  const Value* found = self.dict()->Find(bound.Get(0));
  return found == nullptr ? bound.Get(1) : *found;
}
absl::StatusOr<Value> CopySelf(Machine&, const Value& self, Arguments arguments) {
  RETURN_IF_ERROR(Bound::To("copy", {}, 0, std::move(arguments)).status());
  return self;
}

absl::StatusOr<Value> ListCount(Machine& machine, const Value& self, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::To("count", {"value"}, 1, std::move(arguments)));
  int64_t count = 0;
  for (const Value& item : self.list()->items) {
    ASSIGN_OR_RETURN(const bool equal, AreEqual(item, bound.Get(0), machine));
    count += equal ? 1 : 0;
  }
  return Value(count);
}
absl::StatusOr<Value> ListIndex(Machine& machine, const Value& self, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::To("index", {"value"}, 1, std::move(arguments)));
  const std::vector<Value>& items = self.list()->items;
  for (size_t i = 0; i < items.size(); ++i) {
    ASSIGN_OR_RETURN(const bool equal, AreEqual(items[i], bound.Get(0), machine));
    if (equal) return Value(static_cast<int64_t>(i));
  }
  return InvalidArgument("index(): the value is not in the list");
}

absl::StatusOr<Value> LoopCycle(Machine&, const Value& self, Arguments arguments) {
  return self.loop()->Cycle(arguments);
}
absl::StatusOr<Value> LoopChanged(Machine& machine, const Value& self, Arguments arguments) {
  return self.loop()->Changed(arguments, machine);
}

constexpr MethodEntry kDictMethods[] = {
    {"items", DictItems}, {"keys", DictKeys}, {"values", DictValues},
    {"get", DictGet},     {"copy", CopySelf}, {"fromkeys", nullptr},
};
constexpr MethodEntry kListMethods[] = {
    {"count", ListCount}, {"index", ListIndex}, {"copy", CopySelf}};
constexpr MethodEntry kTupleMethods[] = {{"count", ListCount}, {"index", ListIndex}};
constexpr MethodEntry kLoopMethods[] = {{"cycle", LoopCycle}, {"changed", LoopChanged}};

constexpr std::array<std::string_view, 5> kForbiddenOfDict = {"clear", "pop", "popitem",
                                                              "setdefault", "update"};
constexpr std::array<std::string_view, 8> kForbiddenOfList = {
    "append", "clear", "pop", "reverse", "insert", "sort", "extend", "remove"};

Value BindMethod(const Value& self, const MethodEntry& entry) {
  auto callable = std::make_shared<Callable>();
  callable->name = fmt::format("{}.{}", self.type(), entry.name);
  callable->depth = self.depth() + 1;
  callable->call = [self, entry](Machine& machine, Arguments arguments) -> absl::StatusOr<Value> {
    if (entry.method == nullptr) {
      return Unimplemented("the method {} of '{}' is not supported", entry.name, self.type());
    }
    return entry.method(machine, self, std::move(arguments));
  };
  return Value(std::shared_ptr<const Callable>(std::move(callable)));
}

std::span<const MethodEntry> MethodsOf(const Value& object) {
  if (object.dict() != nullptr) return kDictMethods;
  if (object.loop() != nullptr) return kLoopMethods;
  const List* list = object.list();
  if (list == nullptr) return {};
  if (list->kind == List::Kind::kList) return kListMethods;
  if (list->kind == List::Kind::kTuple || list->kind == List::Kind::kRange) return kTupleMethods;
  return {};
}

bool IsForbidden(const Value& object, std::string_view name) {
  const List* list = object.list();
  if (list != nullptr && list->kind == List::Kind::kList) {
    return std::find(kForbiddenOfList.begin(), kForbiddenOfList.end(), name) !=
           kForbiddenOfList.end();
  }
  return object.dict() != nullptr && std::find(kForbiddenOfDict.begin(), kForbiddenOfDict.end(),
                                               name) != kForbiddenOfDict.end();
}

}  // namespace

std::optional<Value> FindMethod(const Value& object, std::string_view name) {
  if (IsForbidden(object, name)) {
    return Value::MakeUndefined(
        fmt::format("access to attribute '{}' of '{}' object is unsafe: templates cannot change "
                    "lists and dicts",
                    name, object.type()),
        /*forbidden=*/true);
  }
  if (object.text() != nullptr) {
    const MethodEntry* const entry = FindStringMethod(name);
    if (entry == nullptr) return std::nullopt;
    return BindMethod(object, *entry);
  }
  for (const MethodEntry& entry : MethodsOf(object)) {
    if (entry.name == name) return BindMethod(object, entry);
  }
  return std::nullopt;
}

}  // namespace tandem::jinja
