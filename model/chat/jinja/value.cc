#include "model/chat/jinja/value.h"

#include <algorithm>
#include <cmath>

#include "base/status.h"

namespace tandem::jinja {
namespace {

template <typename... Visitors>
struct Overload : Visitors... {
  using Visitors::operator()...;
};
template <typename... Visitors>
Overload(Visitors...) -> Overload<Visitors...>;

absl::Status TooDeep() {
  return InvalidArgument("lists and dicts are nested more than {} deep", kMaxValueDepth);
}

std::string_view TypeOf(List::Kind kind) {
  switch (kind) {
    case List::Kind::kList:
      return "list";
    case List::Kind::kTuple:
      return "tuple";
    case List::Kind::kRange:
      return "range";
    case List::Kind::kKeys:
      return "dict_keys";
    case List::Kind::kValues:
      return "dict_values";
    case List::Kind::kItems:
      return "dict_items";
    case List::Kind::kGenerator:
      return "generator";
  }
  return "list";
}

}  // namespace

std::optional<int64_t> Value::integer() const {
  if (const auto* value = std::get_if<int64_t>(&data_)) return *value;
  if (const bool* value = boolean()) return *value ? 1 : 0;
  return std::nullopt;
}

std::optional<double> Value::number() const {
  if (const double* value = real()) return *value;
  if (const auto value = integer()) return static_cast<double>(*value);
  return std::nullopt;
}

std::string_view Value::type() const {
  return std::visit(
      Overload{
          [](None) -> std::string_view { return "NoneType"; },
          [](const std::shared_ptr<const Undefined>&) -> std::string_view { return "Undefined"; },
          [](bool) -> std::string_view { return "bool"; },
          [](int64_t) -> std::string_view { return "int"; },
          [](double) -> std::string_view { return "float"; },
          [](const std::shared_ptr<const Text>&) -> std::string_view { return "str"; },
          [](const std::shared_ptr<const List>& list) { return TypeOf(list->kind); },
          [](const std::shared_ptr<const Dict>&) -> std::string_view { return "dict"; },
          [](const std::shared_ptr<Namespace>&) -> std::string_view { return "Namespace"; },
          [](const std::shared_ptr<const Callable>&) -> std::string_view { return "function"; },
          [](const std::shared_ptr<Loop>&) -> std::string_view { return "LoopContext"; },
      },
      data_);
}

int Value::depth() const {
  if (const List* value = list()) return value->depth;
  if (const Dict* value = dict()) return value->depth();
  if (const Callable* value = callable()) return value->depth;
  return 0;
}

bool Value::SameAs(const Value& other) const {
  if (data_.index() != other.data_.index()) return false;
  return std::visit(
      [&other](const auto& mine) {
        const auto& theirs = std::get<std::decay_t<decltype(mine)>>(other.data_);
        if constexpr (std::is_same_v<std::decay_t<decltype(mine)>, None>) {
          return true;
        } else {
          return mine == theirs;
        }
      },
      data_);
}

absl::StatusOr<Value> MakeList(std::vector<Value> items, List::Kind kind) {
  auto list = std::make_shared<List>();
  list->kind = kind;
  for (const Value& item : items) list->depth = std::max(list->depth, item.depth() + 1);
  if (list->depth > kMaxValueDepth) return TooDeep();
  list->items = std::move(items);
  return Value(std::shared_ptr<const List>(std::move(list)));
}

std::optional<Dict::Key> Dict::KeyOf(const Value& key) {
  if (const Text* text = key.text()) return Key{Key::Kind::kText, text->view()};
  if (const auto integer = key.integer()) return Key{Key::Kind::kInteger, {}, *integer};
  if (const double* real = key.real()) {
    // Equal numbers are the same key of a dict, whatever their type.
    if (std::trunc(*real) == *real && std::abs(*real) < 9e18) {
      return Key{Key::Kind::kInteger, {}, static_cast<int64_t>(*real)};
    }
    return Key{Key::Kind::kReal, {}, 0, *real};
  }
  if (key.is_none()) return Key{Key::Kind::kNone, {}};
  return std::nullopt;
}

absl::Status Dict::Set(Value key, Value value) {
  const std::optional<Key> known = KeyOf(key);
  if (!known) return InvalidArgument("a {} cannot be the key of a dict here", key.type());
  depth_ = std::max(depth_, value.depth() + 1);
  if (depth_ > kMaxValueDepth) return TooDeep();
  const auto [at, added] = index_.try_emplace(*known, entries_.size());
  if (added) {
    entries_.push_back({std::move(key), std::move(value)});
  } else {
    entries_[at->second].value = std::move(value);
  }
  return absl::OkStatus();
}

const Value* Dict::FindKey(const Key& key) const {
  const auto at = index_.find(key);
  return at == index_.end() ? nullptr : &entries_[at->second].value;
}

const Value* Dict::Find(const Value& key) const {
  const std::optional<Key> known = KeyOf(key);
  return known ? FindKey(*known) : nullptr;
}

const Value* Dict::Find(std::string_view key) const { return FindKey(Key{Key::Kind::kText, key}); }

const Value* Namespace::Find(std::string_view name) const {
  const auto at = std::find_if(attributes.begin(), attributes.end(),
                               [&](const auto& attribute) { return attribute.first == name; });
  return at == attributes.end() ? nullptr : &at->second;
}

void Namespace::Set(std::string_view name, Value value) {
  for (auto& attribute : attributes) {
    if (attribute.first == name) {
      attribute.second = std::move(value);
      return;
    }
  }
  attributes.emplace_back(name, std::move(value));
}

}  // namespace tandem::jinja
