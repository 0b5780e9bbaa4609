#include "model/chat/jinja/arguments.h"

#include <algorithm>

#include "base/status.h"
#include "model/chat/jinja/operators.h"

namespace tandem::jinja {

absl::StatusOr<Bound> Bound::To(std::string_view function,
                                std::initializer_list<std::string_view> parameters, size_t required,
                                Arguments arguments) {
  Bound bound;
  bound.function_ = function;
  bound.parameters_ = parameters;
  bound.values_.resize(parameters.size());
  if (arguments.positional.size() > parameters.size()) {
    return InvalidArgument("{}() takes at most {} arguments, {} are given", function,
                           parameters.size(), arguments.positional.size());
  }
  for (size_t i = 0; i < arguments.positional.size(); ++i) {
    bound.values_[i] = std::move(arguments.positional[i]);
  }
  for (auto& [name, value] : arguments.named) {
    const auto at = std::find(parameters.begin(), parameters.end(), name.view());
    if (at == parameters.end()) {
      return InvalidArgument("{}() has no parameter '{}'", function, name.view());
    }
    std::optional<Value>& slot = bound.values_[static_cast<size_t>(at - parameters.begin())];
    if (slot) return InvalidArgument("{}() is given '{}' twice", function, name.view());
    slot = std::move(value);
  }
  for (size_t i = 0; i < required; ++i) {
    if (bound.values_[i]) continue;
    return InvalidArgument("{}() wants the argument '{}'", function, bound.parameters_[i]);
  }
  return bound;
}

absl::StatusOr<int64_t> Bound::Integer(size_t i, int64_t otherwise) const {
  if (!Has(i)) return otherwise;
  if (const auto integer = values_[i]->integer()) return *integer;
  return InvalidArgument("{}() wants an integer as '{}', not '{}'", function_, parameters_[i],
                         values_[i]->type());
}

bool Bound::Truth(size_t i, bool otherwise) const {
  return Has(i) ? IsTrue(*values_[i]) : otherwise;
}

absl::StatusOr<Text> Bound::String(size_t i, std::string_view otherwise, Machine& machine) const {
  if (!Has(i)) return Text(std::string(otherwise));
  if (const Text* text = values_[i]->text()) {
    RETURN_IF_ERROR(machine.SpendBytes(text->size()));
    return *text;
  }
  return InvalidArgument("{}() wants a string as '{}', not '{}'", function_, parameters_[i],
                         values_[i]->type());
}

absl::Status NoArguments(Arguments arguments, std::string_view filter) {
  return Bound::To(filter, {}, 0, std::move(arguments)).status();
}

}  // namespace tandem::jinja
