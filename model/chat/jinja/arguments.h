#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/chat/jinja/machine.h"
#include "model/chat/jinja/value.h"

namespace tandem::jinja {

// The arguments of a call in the order of the parameters. Errors name the function.
class Bound {
 public:
  // The first `required` parameters must be given. INVALID_ARGUMENT for missing, unknown, doubled
  // or too many arguments.
  static absl::StatusOr<Bound> To(std::string_view function,
                                  std::initializer_list<std::string_view> parameters,
                                  size_t required, Arguments arguments);

  // Whether the parameter was given a value, even if that is none.
  bool Has(size_t i) const { return values_[i].has_value(); }
  // The argument; none where it was not given.
  Value Get(size_t i) const { return values_[i].value_or(Value()); }
  absl::StatusOr<int64_t> Integer(size_t i, int64_t otherwise) const;
  bool Truth(size_t i, bool otherwise) const;
  // A copy of the string, which is paid for in steps. INVALID_ARGUMENT for anything but a string.
  absl::StatusOr<Text> String(size_t i, std::string_view otherwise, Machine& machine) const;

 private:
  std::string_view function_;
  std::vector<std::string_view> parameters_;
  std::vector<std::optional<Value>> values_;
};

// INVALID_ARGUMENT when a filter without parameters is given arguments. The message calls it
// `filter`.
absl::Status NoArguments(Arguments arguments, std::string_view filter = "this filter");

}  // namespace tandem::jinja
