#include <algorithm>

#include "base/status.h"
#include "model/chat/jinja/operators.h"

namespace tandem::jinja {
namespace {

absl::StatusOr<bool> AreEqualDicts(const Dict& left, const Dict& right, Machine& machine) {
  if (left.entries().size() != right.entries().size()) return false;
  for (const auto& [key, value] : left.entries()) {
    const Value* other = right.Find(key);
    RETURN_IF_ERROR(machine.SpendOnReading(key));
    if (other == nullptr) return false;
    ASSIGN_OR_RETURN(const bool equal, AreEqual(value, *other, machine));
    if (!equal) return false;
  }
  return true;
}

// Integers and floats are compared exactly: x86's long double holds every int64.
std::partial_ordering CompareNumbers(const Value& left, const Value& right) {
  const auto exact = [](const Value& value) -> long double {
    if (const double* real = value.real()) return *real;
    return static_cast<long double>(*value.integer());
  };
  return exact(left) <=> exact(right);
}

// Whether the left list is less: the first pair of items that differs decides; without one, the
// shorter list is less.
absl::StatusOr<bool> IsLessList(const List& left, const List& right, Machine& machine) {
  const size_t common = std::min(left.items.size(), right.items.size());
  for (size_t i = 0; i < common; ++i) {
    ASSIGN_OR_RETURN(const bool equal, AreEqual(left.items[i], right.items[i], machine));
    if (!equal) return IsLess(left.items[i], right.items[i], machine);
  }
  return left.items.size() < right.items.size();
}

}  // namespace

absl::StatusOr<bool> AreEqual(const Value& left, const Value& right, Machine& machine) {
  RETURN_IF_ERROR(machine.Spend());
  if (left.text() != nullptr && right.text() != nullptr) {
    if (left.text()->size() != right.text()->size()) return false;
    RETURN_IF_ERROR(machine.SpendOnReading(left));
    return left.text()->bytes() == right.text()->bytes();
  }
  if (left.undefined() != nullptr || right.undefined() != nullptr) {
    return left.undefined() != nullptr && right.undefined() != nullptr;
  }
  if (left.number() && right.number()) {
    return CompareNumbers(left, right) == std::partial_ordering::equivalent;
  }
  if (left.list() != nullptr && right.list() != nullptr) {
    const List& a = *left.list();
    const List& b = *right.list();
    if (&a == &b) return true;
    if (a.kind != b.kind || a.kind == List::Kind::kGenerator) return false;
    if (a.items.size() != b.items.size()) return false;
    for (size_t i = 0; i < a.items.size(); ++i) {
      ASSIGN_OR_RETURN(const bool equal, AreEqual(a.items[i], b.items[i], machine));
      if (!equal) return false;
    }
    return true;
  }
  if (left.dict() != nullptr && right.dict() != nullptr) {
    return AreEqualDicts(*left.dict(), *right.dict(), machine);
  }
  return left.SameAs(right);
}

absl::StatusOr<bool> IsLess(const Value& left, const Value& right, Machine& machine) {
  return Compare(CompareOp::kLess, left, right, machine);
}

absl::StatusOr<bool> Compare(CompareOp op, const Value& left, const Value& right,
                             Machine& machine) {
  RETURN_IF_ERROR(machine.Spend());
  switch (op) {
    case CompareOp::kEqual:
      return AreEqual(left, right, machine);
    case CompareOp::kNotEqual: {
      ASSIGN_OR_RETURN(const bool equal, AreEqual(left, right, machine));
      return !equal;
    }
    case CompareOp::kIn:
      return Contains(right, left, machine);
    case CompareOp::kNotIn: {
      ASSIGN_OR_RETURN(const bool contains, Contains(right, left, machine));
      return !contains;
    }
    default:
      break;
  }
  if (left.undefined() != nullptr) return UndefinedError(*left.undefined());
  if (right.undefined() != nullptr) return UndefinedError(*right.undefined());
  const bool or_equal = op == CompareOp::kLessEqual || op == CompareOp::kGreaterEqual;
  const bool less = op == CompareOp::kLess || op == CompareOp::kLessEqual;
  if (left.number() && right.number()) {
    const std::partial_ordering order = CompareNumbers(left, right);
    if (or_equal && order == std::partial_ordering::equivalent) return true;
    return order == (less ? std::partial_ordering::less : std::partial_ordering::greater);
  }
  if (left.text() != nullptr && right.text() != nullptr) {
    RETURN_IF_ERROR(
        machine.SpendOnReading(left.text()->size() < right.text()->size() ? left : right));
    // Comparing UTF-8 by bytes gives the order of code points.
    const int order = left.text()->bytes().compare(right.text()->bytes());
    return (or_equal && order == 0) || (less ? order < 0 : order > 0);
  }
  if (HaveSameKind(left, right)) {
    if (or_equal) {
      ASSIGN_OR_RETURN(const bool equal, AreEqual(left, right, machine));
      if (equal) return true;
    }
    return less ? IsLessList(*left.list(), *right.list(), machine)
                : IsLessList(*right.list(), *left.list(), machine);
  }
  return InvalidArgument("values of type '{}' and '{}' have no order", left.type(), right.type());
}

bool IsTrue(const Value& value) {
  if (value.is_none() || value.undefined() != nullptr) return false;
  if (const auto integer = value.integer()) return *integer != 0;
  if (const double* real = value.real()) return *real != 0;
  if (const Text* text = value.text()) return !text->empty();
  if (const List* list = value.list()) {
    return list->kind == List::Kind::kGenerator || !list->items.empty();
  }
  if (const Dict* dict = value.dict()) return !dict->entries().empty();
  return true;
}

}  // namespace tandem::jinja
