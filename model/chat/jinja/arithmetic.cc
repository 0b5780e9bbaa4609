#include <algorithm>
#include <cmath>
#include <limits>

#include "base/status.h"
#include "model/chat/jinja/operators.h"

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

}  // namespace

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

}  // namespace tandem::jinja
