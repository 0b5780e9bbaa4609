#pragma once

#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "model/chat/jinja/machine.h"
#include "model/chat/jinja/value.h"

namespace tandem::jinja {

// The attribute of this name that Python's str, list, dict and so on have: a method that is bound
// to `object`. A method that would change the object is undefined, as in Jinja's sandbox; one that
// this build does not have fails when it is called. Nothing when Python has no such attribute
// either.
std::optional<Value> FindMethod(const Value& object, std::string_view name);

using Method = absl::StatusOr<Value> (*)(Machine&, const Value& self, Arguments);
struct MethodEntry {
  std::string_view name;
  Method method;  // null: not supported
};
// The method of str of that name; null where Python's str has none.
const MethodEntry* FindStringMethod(std::string_view name);
// Those methods of str that divide a text, and those that look for a text in it.
std::span<const MethodEntry> SplitMethods();
std::span<const MethodEntry> SearchMethods();

// The end of a text from which a method works.
enum class From : uint8_t { kLeft, kRight };

// Operations on texts that filters and methods share.
absl::StatusOr<Value> JoinTexts(const Text& separator, const std::vector<Text>& texts,
                                Machine& machine);
absl::StatusOr<Text> ReplaceText(const Text& text, const Text& old, const Text& replacement,
                                 int64_t count, Machine& machine);
std::vector<Text> SplitLines(const Text& text, bool keep_ends);
absl::StatusOr<Text> CenterText(const Text& text, int64_t width, const Text& fill,
                                Machine& machine);

}  // namespace tandem::jinja
