#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "model/chat/jinja/machine.h"
#include "model/chat/jinja/value.h"

namespace tandem::jinja {

// repr() of Python's float: the shortest digits that read back as the same number.
std::string FormatReal(double value);

// str() and repr() of Python. INVALID_ARGUMENT for a value that Python prints as an address.
absl::StatusOr<Text> Str(const Value& value, Machine& machine);
absl::StatusOr<Text> Repr(const Value& value, Machine& machine);

// The options of Python's json.dumps().
struct JsonStyle {
  bool ensure_ascii = false;
  std::optional<std::string> indent;  // the indent of each level; nothing: all on one line
  std::string item_separator = ", ";
  std::string key_separator = ": ";
  bool sort_keys = false;
};
absl::StatusOr<Text> ToJson(const Value& value, const JsonStyle& style, Machine& machine);

}  // namespace tandem::jinja
