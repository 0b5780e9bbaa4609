#pragma once

#include <string_view>

#include "absl/status/statusor.h"
#include "model/chat/jinja/machine.h"
#include "model/chat/jinja/value.h"

namespace tandem::jinja {

// The filters and tests by their names: value|name(arguments), value is name(arguments).
struct FilterEntry {
  std::string_view name;
  absl::StatusOr<Value> (*run)(Machine&, const Value&, Arguments);
};
struct TestEntry {
  std::string_view name;
  absl::StatusOr<bool> (*run)(Machine&, const Value&, Arguments);
};

// The filter or test of that name; null where this build has none.
const FilterEntry* FindFilter(std::string_view name);
const TestEntry* FindTest(std::string_view name);

std::span<const FilterEntry> TextFilters();
std::span<const FilterEntry> FormatFilters();
std::span<const FilterEntry> NumberFilters();
std::span<const FilterEntry> SequenceFilters();
std::span<const FilterEntry> SortFilters();
std::span<const FilterEntry> SelectFilters();

// The functions that every template sees. Those with a name but without a function are not
// supported.
struct FunctionEntry {
  std::string_view name;
  absl::StatusOr<Value> (*run)(Machine&, Arguments);
};
std::span<const FunctionEntry> Functions();

}  // namespace tandem::jinja
