#include <algorithm>
#include <charconv>

#include "base/status.h"
#include "model/chat/jinja/attribute_path.h"
#include "model/chat/jinja/operators.h"
#include "model/chat/jinja/registry.h"

namespace tandem::jinja {
namespace {

using Selected = absl::StatusOr<Value>;

Selected MapFilter(Machine& machine, const Value& value, Arguments arguments) {
  if (!IsTrue(value)) return MakeList({}, List::Kind::kGenerator);
  std::vector<Value> mapped;
  if (arguments.positional.empty()) {
    std::optional<AttributePath> path;
    std::optional<Value> otherwise;
    for (const auto& [name, argument] : arguments.named) {
      if (name.view() == "attribute") {
        ASSIGN_OR_RETURN(path, AttributePath::From(argument, machine));
      } else if (name.view() == "default") {
        if (!argument.is_none()) otherwise = argument;
      } else {
        return InvalidArgument("map has no parameter '{}'", name.view());
      }
    }
    if (!path) return InvalidArgument("map wants a filter or an attribute");
    ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(value, machine));
    for (Value& item : items) {
      ASSIGN_OR_RETURN(Value result, path->Get(std::move(item), otherwise, machine));
      mapped.push_back(std::move(result));
    }
    return MakeList(std::move(mapped), List::Kind::kGenerator);
  }
  const Value name = arguments.positional[0];
  if (name.text() == nullptr) return InvalidArgument("map wants the name of a filter");
  const FilterEntry* const filter = FindFilter(name.text()->view());
  if (filter == nullptr) {
    return Unimplemented("the filter '{}' is not supported", name.text()->view());
  }
  arguments.positional.erase(arguments.positional.begin());
  ASSIGN_OR_RETURN(const std::vector<Value> items, Iterate(value, machine));
  for (const Value& item : items) {
    RETURN_IF_ERROR(machine.Spend());
    ASSIGN_OR_RETURN(Value result, filter->run(machine, item, arguments));
    mapped.push_back(std::move(result));
  }
  return MakeList(std::move(mapped), List::Kind::kGenerator);
}

enum class Keep : uint8_t { kMatching, kOthers };
enum class Look : uint8_t { kAtItem, kAtAttribute };

template <Keep kKeep, Look kLook>
Selected SelectFilter(Machine& machine, const Value& value, Arguments arguments) {
  if (!IsTrue(value)) return MakeList({}, List::Kind::kGenerator);
  std::vector<Value>& given = arguments.positional;
  AttributePath path;
  if (kLook == Look::kAtAttribute) {
    if (given.empty()) return InvalidArgument("selectattr and rejectattr want an attribute");
    ASSIGN_OR_RETURN(path, AttributePath::From(given[0], machine));
    given.erase(given.begin());
  }
  const TestEntry* test = nullptr;
  if (!given.empty()) {
    const Text* name = given[0].text();
    if (name == nullptr) return InvalidArgument("select and reject want the name of a test");
    test = FindTest(name->view());
    if (test == nullptr) return Unimplemented("the test '{}' is not supported", name->view());
    given.erase(given.begin());
  }
  ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(value, machine));
  std::vector<Value> kept;
  for (Value& item : items) {
    RETURN_IF_ERROR(machine.Spend());
    ASSIGN_OR_RETURN(const Value looked_at, path.Get(item, std::nullopt, machine));
    bool holds = IsTrue(looked_at);
    if (test != nullptr) {
      ASSIGN_OR_RETURN(holds, test->run(machine, looked_at, arguments));
    }
    if (holds == (kKeep == Keep::kMatching)) kept.push_back(std::move(item));
  }
  return MakeList(std::move(kept), List::Kind::kGenerator);
}

constexpr FilterEntry kSelectFilters[] = {
    {"map", MapFilter},
    {"reject", SelectFilter<Keep::kOthers, Look::kAtItem>},
    {"rejectattr", SelectFilter<Keep::kOthers, Look::kAtAttribute>},
    {"select", SelectFilter<Keep::kMatching, Look::kAtItem>},
    {"selectattr", SelectFilter<Keep::kMatching, Look::kAtAttribute>},
};

}  // namespace

std::span<const FilterEntry> SelectFilters() { return kSelectFilters; }

absl::StatusOr<AttributePath> AttributePath::From(const Value& attribute, Machine& machine) {
  AttributePath path;
  if (attribute.is_none()) return path;
  const Text* text = attribute.text();
  if (text == nullptr) {
    path.parts_.push_back(attribute);
    return path;
  }
  RETURN_IF_ERROR(machine.Spend(text->size()));
  std::string_view rest = text->view();
  while (true) {
    const size_t dot = rest.find('.');
    const std::string_view part = rest.substr(0, dot);
    int64_t index = 0;
    const auto read = std::from_chars(part.data(), part.data() + part.size(), index);
    const bool number = !part.empty() && part[0] != '-' && read.ec == std::errc() &&
                        read.ptr == part.data() + part.size();
    path.parts_.push_back(number ? Value(index) : Value::String(part));
    if (dot == std::string_view::npos) return path;
    rest.remove_prefix(dot + 1);
  }
}

absl::StatusOr<std::vector<AttributePath>> AttributePath::ListFrom(const Value& attribute,
                                                                   Machine& machine) {
  std::vector<AttributePath> paths;
  if (attribute.text() == nullptr) {
    ASSIGN_OR_RETURN(AttributePath path, From(attribute, machine));
    paths.push_back(std::move(path));
    return paths;
  }
  std::string_view rest = attribute.text()->view();
  while (true) {
    const size_t comma = rest.find(',');
    ASSIGN_OR_RETURN(AttributePath path, From(Value::String(rest.substr(0, comma)), machine));
    paths.push_back(std::move(path));
    if (comma == std::string_view::npos) return paths;
    rest.remove_prefix(comma + 1);
  }
}

absl::StatusOr<Value> AttributePath::Get(Value item, const std::optional<Value>& otherwise,
                                         Machine& machine) const {
  for (const Value& part : parts_) {
    ASSIGN_OR_RETURN(item, GetItem(item, part, machine));
    if (otherwise && item.undefined() != nullptr) item = *otherwise;
  }
  return item;
}

}  // namespace tandem::jinja
