#include "model/chat/jinja/operators.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/status.h"
#include "model/chat/jinja/characters.h"

namespace tandem::jinja {
namespace {

constexpr std::string_view kSymbols[] = {"+", "-", "*", "/", "//", "%", "**"};

absl::Status BadOperands(BinaryOp op, const Value& left, const Value& right) {
  return InvalidArgument("unsupported operand types for {}: '{}' and '{}'",
                         kSymbols[static_cast<size_t>(op)], left.type(), right.type());
}

absl::Status Overflow() { return InvalidArgument("an integer does not fit into 64 bits"); }
absl::Status DivisionByZero() { return InvalidArgument("division by zero"); }

absl::StatusOr<Value> RaiseInteger(int64_t base, int64_t exponent) {
  if (exponent < 0) {
    if (base == 0) return DivisionByZero();
    return Value(std::pow(static_cast<double>(base), static_cast<double>(exponent)));
  }
  int64_t result = 1;
  while (exponent > 0) {
    if ((exponent & 1) != 0 && __builtin_mul_overflow(result, base, &result)) return Overflow();
    exponent >>= 1;
    if (exponent > 0 && __builtin_mul_overflow(base, base, &base)) return Overflow();
  }
  return Value(result);
}

absl::StatusOr<Value> DivideIntegers(BinaryOp op, int64_t a, int64_t b) {
  if (b == 0) return DivisionByZero();
  if (op == BinaryOp::kDivide) return Value(static_cast<double>(a) / static_cast<double>(b));
  if (a == std::numeric_limits<int64_t>::min() && b == -1) {
    if (op == BinaryOp::kFloorDivide) return Overflow();
    return Value(int64_t{0});
  }
  const int64_t remainder = a % b;
  const bool down = remainder != 0 && (remainder < 0) != (b < 0);
  if (op == BinaryOp::kModulo) return Value(down ? remainder + b : remainder);
  return Value(down ? a / b - 1 : a / b);
}

absl::StatusOr<Value> CalculateIntegers(BinaryOp op, int64_t a, int64_t b) {
  int64_t result = 0;
  switch (op) {
    case BinaryOp::kAdd:
      if (__builtin_add_overflow(a, b, &result)) return Overflow();
      return Value(result);
    case BinaryOp::kSubtract:
      if (__builtin_sub_overflow(a, b, &result)) return Overflow();
      return Value(result);
    case BinaryOp::kMultiply:
      if (__builtin_mul_overflow(a, b, &result)) return Overflow();
      return Value(result);
    case BinaryOp::kPower:
      return RaiseInteger(a, b);
    default:
      return DivideIntegers(op, a, b);
  }
}

// a % b of Python's floats: the remainder has the sign of the divisor, even when it is zero.
double ModuloReal(double a, double b) {
  double remainder = std::fmod(a, b);
  if (remainder == 0) return std::copysign(0.0, b);
  if ((b < 0) != (remainder < 0)) remainder += b;
  return remainder;
}

double FloorDivideReal(double a, double b) {
  const double remainder = std::fmod(a, b);
  double quotient = (a - remainder) / b;
  if (remainder != 0 && (b < 0) != (remainder < 0)) quotient -= 1;
  if (quotient == 0) return std::copysign(0.0, a / b);
  const double floor = std::floor(quotient);
  return quotient - floor > 0.5 ? floor + 1 : floor;
}

absl::StatusOr<Value> CalculateReals(BinaryOp op, double a, double b) {
  switch (op) {
    case BinaryOp::kAdd:
      return Value(a + b);
    case BinaryOp::kSubtract:
      return Value(a - b);
    case BinaryOp::kMultiply:
      return Value(a * b);
    case BinaryOp::kPower: {
      if (a == 0 && b < 0) return DivisionByZero();
      if (a < 0 && std::trunc(b) != b) {
        return InvalidArgument("a negative number to a fractional power is not supported");
      }
      const double result = std::pow(a, b);
      if (std::isinf(result) && std::isfinite(a) && std::isfinite(b)) {
        return InvalidArgument("a float is too large");
      }
      return Value(result);
    }
    default:
      break;
  }
  if (b == 0) return DivisionByZero();
  if (op == BinaryOp::kDivide) return Value(a / b);
  return Value(op == BinaryOp::kModulo ? ModuloReal(a, b) : FloorDivideReal(a, b));
}

absl::StatusOr<Value> AddRows(const Value& left, const Value& right, Machine& machine) {
  std::vector<Value> items = left.list()->items;
  const std::vector<Value>& more = right.list()->items;
  RETURN_IF_ERROR(machine.Spend(items.size() + more.size()));
  items.insert(items.end(), more.begin(), more.end());
  return MakeList(std::move(items), left.list()->kind);
}

absl::StatusOr<Value> Repeat(const Value& value, int64_t count, Machine& machine) {
  const auto times = static_cast<size_t>(std::max<int64_t>(count, 0));
  if (const Text* text = value.text()) {
    if (text->empty() || times == 0) return Value(Text());
    if (times > (size_t{1} << 40) / text->size()) return machine.Spend(size_t{1} << 40);
    RETURN_IF_ERROR(machine.SpendBytes(text->size() * times));
    Text repeated;
    for (size_t i = 0; i < times; ++i) repeated.Append(*text);
    return Value(std::move(repeated));
  }
  const List& list = *value.list();
  if (list.items.empty() || times == 0) return MakeList({}, list.kind);
  if (times > (size_t{1} << 40) / list.items.size()) return machine.Spend(size_t{1} << 40);
  RETURN_IF_ERROR(machine.Spend(list.items.size() * times));
  std::vector<Value> items;
  for (size_t i = 0; i < times; ++i) {
    items.insert(items.end(), list.items.begin(), list.items.end());
  }
  return MakeList(std::move(items), list.kind);
}

bool IsSequence(const Value& value) {
  const List* list = value.list();
  return value.text() != nullptr ||
         (list != nullptr && (list->kind == List::Kind::kList || list->kind == List::Kind::kTuple));
}

bool HaveSameKind(const Value& left, const Value& right) {
  return left.list() != nullptr && right.list() != nullptr && IsSequence(left) &&
         left.list()->kind == right.list()->kind;
}

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

absl::Status UndefinedError(const Undefined& undefined) {
  return InvalidArgument("{}", undefined.reason);
}

absl::StatusOr<Value> Calculate(BinaryOp op, const Value& left, const Value& right,
                                Machine& machine) {
  if (op == BinaryOp::kModulo && left.text() != nullptr) {
    return FormatPercent(*left.text(), right, machine);
  }
  if (left.undefined() != nullptr) return UndefinedError(*left.undefined());
  if (right.undefined() != nullptr) return UndefinedError(*right.undefined());
  const auto a = left.integer();
  const auto b = right.integer();
  if (a && b) return CalculateIntegers(op, *a, *b);
  if (left.number() && right.number()) return CalculateReals(op, *left.number(), *right.number());
  if (op == BinaryOp::kAdd && left.text() != nullptr && right.text() != nullptr) {
    RETURN_IF_ERROR(machine.SpendBytes(left.text()->size() + right.text()->size()));
    Text text = *left.text();
    text.Append(*right.text());
    return Value(std::move(text));
  }
  if (op == BinaryOp::kAdd && HaveSameKind(left, right)) return AddRows(left, right, machine);
  if (op == BinaryOp::kMultiply && IsSequence(left) && b) return Repeat(left, *b, machine);
  if (op == BinaryOp::kMultiply && IsSequence(right) && a) return Repeat(right, *a, machine);
  return BadOperands(op, left, right);
}

absl::StatusOr<Value> Negate(const Value& value) {
  if (value.undefined() != nullptr) return UndefinedError(*value.undefined());
  if (const auto integer = value.integer()) {
    if (*integer == std::numeric_limits<int64_t>::min()) return Overflow();
    return Value(-*integer);
  }
  if (const double* real = value.real()) return Value(-*real);
  return InvalidArgument("bad operand type for unary -: '{}'", value.type());
}

absl::StatusOr<Value> Plus(const Value& value) {
  if (value.undefined() != nullptr) return UndefinedError(*value.undefined());
  if (const auto integer = value.integer()) return Value(*integer);
  if (const double* real = value.real()) return Value(*real);
  return InvalidArgument("bad operand type for unary +: '{}'", value.type());
}

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
