#include <algorithm>
#include <cmath>

#include "base/status.h"
#include "model/chat/jinja/arguments.h"
#include "model/chat/jinja/characters.h"
#include "model/chat/jinja/operators.h"
#include "model/chat/jinja/print.h"
#include "model/chat/jinja/registry.h"

namespace tandem::jinja {
namespace {

using Truth = absl::StatusOr<bool>;

template <bool (*kHolds)(const Value&)>
Truth Simple(Machine&, const Value& value, Arguments arguments) {
  RETURN_IF_ERROR(Bound::To("this test", {}, 0, std::move(arguments)).status());
  return kHolds(value);
}

bool IsDefined(const Value& value) { return value.undefined() == nullptr; }
bool IsUndefined(const Value& value) { return value.undefined() != nullptr; }
bool IsNone(const Value& value) { return value.is_none(); }
bool IsBoolean(const Value& value) { return value.boolean() != nullptr; }
bool IsExactlyTrue(const Value& value) { return value.boolean() && *value.boolean(); }
bool IsExactlyFalse(const Value& value) { return value.boolean() && !*value.boolean(); }
bool IsInteger(const Value& value) { return value.integer() && !value.boolean(); }
bool IsReal(const Value& value) { return value.real() != nullptr; }
bool IsNumber(const Value& value) { return value.number().has_value(); }
bool IsString(const Value& value) { return value.text() != nullptr; }
bool IsMapping(const Value& value) { return value.dict() != nullptr; }
bool IsCallable(const Value& value) {
  return value.callable() != nullptr || value.undefined() != nullptr || value.loop() != nullptr;
}
bool IsEscaped(const Value&) { return false; }
// Whether a value has a length and can be subscripted.
bool IsSequenceValue(const Value& value) {
  if (value.undefined() || value.text() || value.dict()) return true;
  const List* list = value.list();
  return list != nullptr && (list->kind == List::Kind::kList || list->kind == List::Kind::kTuple ||
                             list->kind == List::Kind::kRange);
}

template <bool (*kHas)(int32_t)>
Truth HasCase(Machine& machine, const Value& value, Arguments arguments) {
  RETURN_IF_ERROR(Bound::To("this test", {}, 0, std::move(arguments)).status());
  ASSIGN_OR_RETURN(const Text text, Str(value, machine));
  bool found = false;
  for (size_t at = 0; at < text.size();) {
    const int32_t c = NextCharacter(text.view(), at);
    if (IsCased(c) && !kHas(c)) return false;
    found = found || IsCased(c);
  }
  return found;
}

template <CompareOp kOp>
Truth CompareWith(Machine& machine, const Value& value, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::To("this test", {"other"}, 1, std::move(arguments)));
  return Compare(kOp, value, bound.Get(0), machine);
}

Truth RemainderIs(Machine& machine, const Value& value, const Value& divisor, int64_t wanted) {
  ASSIGN_OR_RETURN(const Value remainder, Calculate(BinaryOp::kModulo, value, divisor, machine));
  return AreEqual(remainder, Value(wanted), machine);
}

Truth IsOdd(Machine& machine, const Value& value, Arguments arguments) {
  RETURN_IF_ERROR(Bound::To("odd", {}, 0, std::move(arguments)).status());
  return RemainderIs(machine, value, Value(int64_t{2}), 1);
}
Truth IsEven(Machine& machine, const Value& value, Arguments arguments) {
  RETURN_IF_ERROR(Bound::To("even", {}, 0, std::move(arguments)).status());
  return RemainderIs(machine, value, Value(int64_t{2}), 0);
}
Truth IsDivisible(Machine& machine, const Value& value, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::To("divisibleby", {"num"}, 1, std::move(arguments)));
  return RemainderIs(machine, value, bound.Get(0), 0);
}
Truth IsSame(Machine&, const Value& value, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::To("sameas", {"other"}, 1, std::move(arguments)));
  return value.SameAs(bound.Get(0));
}
Truth IsFilter(Machine&, const Value& value, Arguments) {
  return value.text() != nullptr && FindFilter(value.text()->view()) != nullptr;
}
Truth IsTest(Machine&, const Value& value, Arguments) {
  return value.text() != nullptr && FindTest(value.text()->view()) != nullptr;
}

constexpr TestEntry kTests[] = {
    {"defined", Simple<IsDefined>},
    {"undefined", Simple<IsUndefined>},
    {"none", Simple<IsNone>},
    {"boolean", Simple<IsBoolean>},
    {"true", Simple<IsExactlyTrue>},
    {"false", Simple<IsExactlyFalse>},
    {"integer", Simple<IsInteger>},
    {"float", Simple<IsReal>},
    {"number", Simple<IsNumber>},
    {"string", Simple<IsString>},
    {"mapping", Simple<IsMapping>},
    {"sequence", Simple<IsSequenceValue>},
    {"iterable", Simple<IsIterable>},
    {"callable", Simple<IsCallable>},
    {"escaped", Simple<IsEscaped>},
    {"lower", HasCase<IsLower>},
    {"upper", HasCase<IsUpper>},
    {"odd", IsOdd},
    {"even", IsEven},
    {"divisibleby", IsDivisible},
    {"sameas", IsSame},
    {"filter", IsFilter},
    {"test", IsTest},
    {"in", CompareWith<CompareOp::kIn>},
    {"==", CompareWith<CompareOp::kEqual>},
    {"eq", CompareWith<CompareOp::kEqual>},
    {"equalto", CompareWith<CompareOp::kEqual>},
    {"!=", CompareWith<CompareOp::kNotEqual>},
    {"ne", CompareWith<CompareOp::kNotEqual>},
    {">", CompareWith<CompareOp::kGreater>},
    {"gt", CompareWith<CompareOp::kGreater>},
    {"greaterthan", CompareWith<CompareOp::kGreater>},
    {">=", CompareWith<CompareOp::kGreaterEqual>},
    {"ge", CompareWith<CompareOp::kGreaterEqual>},
    {"<", CompareWith<CompareOp::kLess>},
    {"lt", CompareWith<CompareOp::kLess>},
    {"lessthan", CompareWith<CompareOp::kLess>},
    {"<=", CompareWith<CompareOp::kLessEqual>},
    {"le", CompareWith<CompareOp::kLessEqual>},
};

}  // namespace

const TestEntry* FindTest(std::string_view name) {
  for (const TestEntry& test : kTests) {
    if (test.name == name) return &test;
  }
  return nullptr;
}

}  // namespace tandem::jinja
