#include <algorithm>
#include <cmath>
#include <cstdlib>

#include "base/status.h"
#include "model/chat/jinja/arguments.h"
#include "model/chat/jinja/numbers.h"
#include "model/chat/jinja/operators.h"
#include "model/chat/jinja/registry.h"

namespace tandem::jinja {
namespace {

using FilterResult = absl::StatusOr<Value>;

FilterResult IntFilter(Machine& machine, const Value& value, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound,
                   Bound::To("int", {"default", "base"}, 0, std::move(arguments)));
  ASSIGN_OR_RETURN(const int64_t base, bound.Integer(1, 10));
  const Value otherwise = bound.Has(0) ? bound.Get(0) : Value(int64_t{0});
  if (const auto integer = value.integer()) return Value(*integer);
  double real = value.real() != nullptr ? *value.real() : std::nan("");
  if (const Text* text = value.text()) {
    RETURN_IF_ERROR(machine.SpendBytes(text->size()));
    ASSIGN_OR_RETURN(const auto integer, ParseInteger(text->view(), base));
    if (integer) return Value(*integer);
    real = ParseReal(text->view()).value_or(std::nan(""));
  }
  if (value.undefined() != nullptr) return UndefinedError(*value.undefined());
  if (!std::isfinite(real)) return otherwise;
  if (std::abs(real) >= 9.2e18) return InvalidArgument("{} does not fit into 64 bits", real);
  return Value(static_cast<int64_t>(real));
}

FilterResult FloatFilter(Machine& machine, const Value& value, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound, Bound::To("float", {"default"}, 0, std::move(arguments)));
  if (value.undefined() != nullptr) return UndefinedError(*value.undefined());
  std::optional<double> real = value.number();
  if (value.text() != nullptr) {
    RETURN_IF_ERROR(machine.SpendBytes(value.text()->size()));
    real = ParseReal(value.text()->view());
  }
  if (real) return Value(*real);
  return bound.Has(0) ? bound.Get(0) : Value(0.0);
}

FilterResult AbsFilter(Machine&, const Value& value, Arguments arguments) {
  RETURN_IF_ERROR(NoArguments(std::move(arguments)));
  if (value.undefined() != nullptr) return UndefinedError(*value.undefined());
  if (const auto integer = value.integer()) {
    return *integer < 0 ? Negate(value) : FilterResult(Value(*integer));
  }
  if (const double* real = value.real()) return Value(std::abs(*real));
  return InvalidArgument("abs wants a number, not '{}'", value.type());
}

FilterResult RoundFilter(Machine& machine, const Value& value, Arguments arguments) {
  ASSIGN_OR_RETURN(const Bound bound,
                   Bound::To("round", {"precision", "method"}, 0, std::move(arguments)));
  ASSIGN_OR_RETURN(const int64_t precision, bound.Integer(0, 0));
  ASSIGN_OR_RETURN(const Text method, bound.String(1, "common", machine));
  if (value.undefined() != nullptr) return UndefinedError(*value.undefined());
  if (!value.number()) return InvalidArgument("round wants a number, not '{}'", value.type());
  if (precision < 0 || precision > 300) {
    return InvalidArgument("round to {} digits is not supported", precision);
  }
  if (method.view() == "common") {
    if (const auto integer = value.integer()) return Value(*integer);
    if (!std::isfinite(*value.real())) return value;
    return Value(std::strtod(fmt::format("{:.{}f}", *value.real(), precision).c_str(), nullptr));
  }
  if (method.view() != "ceil" && method.view() != "floor") {
    return InvalidArgument("round's method is common, ceil or floor");
  }
  const double scale = std::pow(10.0, static_cast<double>(precision));
  const double scaled = *value.number() * scale;
  return Value((method.view() == "ceil" ? std::ceil(scaled) : std::floor(scaled)) / scale);
}

constexpr FilterEntry kNumberFilters[] = {
    {"abs", AbsFilter},
    {"float", FloatFilter},
    {"int", IntFilter},
    {"round", RoundFilter},
};

}  // namespace

std::span<const FilterEntry> NumberFilters() { return kNumberFilters; }

}  // namespace tandem::jinja
