#pragma once

#include <compare>
#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "model/chat/jinja/machine.h"
#include "model/chat/jinja/value.h"

namespace tandem::jinja {

enum class BinaryOp : uint8_t {
  kAdd,
  kSubtract,
  kMultiply,
  kDivide,
  kFloorDivide,
  kModulo,
  kPower
};
enum class CompareOp : uint8_t {
  kEqual,
  kNotEqual,
  kLess,
  kLessEqual,
  kGreater,
  kGreaterEqual,
  kIn,
  kNotIn
};

// Operators and built-in functions of Python. INVALID_ARGUMENT where Python raises.
absl::StatusOr<Value> Calculate(BinaryOp op, const Value& left, const Value& right,
                                Machine& machine);
absl::StatusOr<Value> Negate(const Value& value);
absl::StatusOr<Value> Plus(const Value& value);
absl::StatusOr<bool> Compare(CompareOp op, const Value& left, const Value& right, Machine& machine);
absl::StatusOr<bool> AreEqual(const Value& left, const Value& right, Machine& machine);
absl::StatusOr<bool> IsLess(const Value& left, const Value& right, Machine& machine);
absl::StatusOr<bool> Contains(const Value& container, const Value& item, Machine& machine);
bool IsTrue(const Value& value);
absl::StatusOr<int64_t> Length(const Value& value);
// The items of a list, the keys of a dict, the characters of a string. Uses a generator up.
absl::StatusOr<std::vector<Value>> Iterate(const Value& value, Machine& machine);
// Whether Iterate can succeed.
bool IsIterable(const Value& value);
// Whether the value is a string, a list or a tuple, which `*` repeats.
bool IsSequence(const Value& value);
// Whether the values are two lists or two tuples, which `+` joins and `<` orders.
bool HaveSameKind(const Value& left, const Value& right);

// obj.name and obj[key] as in Jinja's sandboxed environment: a value that is not there is
// undefined.
absl::StatusOr<Value> GetAttribute(const Value& object, std::string_view name, Machine& machine);
absl::StatusOr<Value> GetItem(const Value& object, const Value& key, Machine& machine);
struct SliceBounds {
  Value start;
  Value stop;
  Value step;
};
absl::StatusOr<Value> GetSlice(const Value& object, const SliceBounds& bounds, Machine& machine);

// The error of using an undefined value.
absl::Status UndefinedError(const Undefined& undefined);

// text % values of Python: formats the values.
absl::StatusOr<Value> FormatPercent(const Text& text, const Value& values, Machine& machine);
// text.format(...) of Python.
absl::StatusOr<Value> FormatBraces(const Text& text, const Arguments& arguments, Machine& machine);

}  // namespace tandem::jinja
