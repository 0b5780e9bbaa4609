#include "model/chat/jinja/make_expression.h"

#include <algorithm>

#include "model/chat/jinja/parser.h"

namespace tandem::jinja {
namespace {

// The largest height of an expression's tree. Bounds the recursion of the parser, the evaluator and
// the destructor.
constexpr int kMaxHeight = 150;

}  // namespace

absl::StatusOr<ExpressionPtr> MakeExpression(Expression::Kind kind, Position at,
                                             std::vector<ExpressionPtr> operands) {
  auto expression = std::make_unique<Expression>();
  expression->kind = kind;
  expression->at = at;
  for (const ExpressionPtr& operand : operands) {
    if (operand != nullptr) expression->height = std::max(expression->height, operand->height + 1);
  }
  expression->operands = std::move(operands);
  if (expression->height > kMaxHeight) {
    return SyntaxError(at, "the expression is nested more than {} deep", kMaxHeight);
  }
  return expression;
}

}  // namespace tandem::jinja
