#pragma once

#include <optional>
#include <vector>

#include "absl/status/statusor.h"
#include "model/chat/jinja/machine.h"
#include "model/chat/jinja/value.h"

namespace tandem::jinja {

// The argument `attribute` of filters such as map and sort: "function.name" or an index.
class AttributePath {
 public:
  // Parses a path. The value none stands for the item itself.
  static absl::StatusOr<AttributePath> From(const Value& attribute, Machine& machine);
  // Parses several paths, separated by commas.
  static absl::StatusOr<std::vector<AttributePath>> ListFrom(const Value& attribute,
                                                             Machine& machine);

  // The value at the path within `item`. `otherwise` takes the place of an undefined value.
  absl::StatusOr<Value> Get(Value item, const std::optional<Value>& otherwise,
                            Machine& machine) const;

 private:
  std::vector<Value> parts_;
};

}  // namespace tandem::jinja
