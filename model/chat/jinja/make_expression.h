#pragma once

#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "model/chat/jinja/syntax.h"

namespace tandem::jinja {

// The operands of an expression, in order.
template <typename... Operands>
std::vector<ExpressionPtr> RowOf(Operands... operands) {
  std::vector<ExpressionPtr> row;
  (row.push_back(std::move(operands)), ...);
  return row;
}

// The node of an expression's tree that stands at `at` in the template. An operand may be null.
// INVALID_ARGUMENT when the tree would be too high.
absl::StatusOr<ExpressionPtr> MakeExpression(Expression::Kind kind, Position at,
                                             std::vector<ExpressionPtr> operands);

}  // namespace tandem::jinja
