#include <algorithm>

#include "base/status.h"
#include "model/chat/jinja/evaluator.h"
#include "model/chat/jinja/operators.h"
#include "model/chat/jinja/print.h"
#include "model/chat/jinja/registry.h"

namespace tandem::jinja {
namespace {

constexpr int kMaxExpressionDepth = 500;

}  // namespace

Evaluator::Result Evaluator::Evaluate(const Expression& expression) {
  RETURN_IF_ERROR(machine_.Spend());
  if (++depth_ > kMaxExpressionDepth) {
    return InvalidArgument("calls are nested more than {} deep", kMaxExpressionDepth);
  }
  Result result = EvaluateKind(expression);
  --depth_;
  if (!result.ok() && !failed_at_) failed_at_ = expression.at;
  return result;
}

Evaluator::Result Evaluator::EvaluateKind(const Expression& expression) {
  using Kind = Expression::Kind;
  const auto& operands = expression.operands;
  switch (expression.kind) {
    case Kind::kConstant:
      return expression.constant;
    case Kind::kVariable:
      return EvaluateVariable(expression);
    case Kind::kList:
    case Kind::kTuple:
      return EvaluateRow(expression);
    case Kind::kDict:
      return EvaluateDict(expression);
    case Kind::kSlice:
      return EvaluateSlice(expression);
    case Kind::kFilter:
      return EvaluateFilter(expression, nullptr);
    case Kind::kConcatenate:
      return EvaluateConcatenation(expression);
    case Kind::kCompare:
      return EvaluateCompare(expression);
    case Kind::kConditional: {
      ASSIGN_OR_RETURN(const Value condition, Evaluate(*operands[0]));
      if (IsTrue(condition)) return Evaluate(*operands[1]);
      if (operands[2] != nullptr) return Evaluate(*operands[2]);
      return Value::MakeUndefined("the inline if-expression has no else");
    }
    default: {
      ASSIGN_OR_RETURN(const Value value, Evaluate(*operands[0]));
      return EvaluateOperation(expression, value);
    }
  }
}

Evaluator::Result Evaluator::EvaluateOperation(const Expression& expression, const Value& value) {
  using Kind = Expression::Kind;
  const auto& operands = expression.operands;
  switch (expression.kind) {
    case Kind::kAttribute:
      return GetAttribute(value, expression.text, machine_);
    case Kind::kItem: {
      ASSIGN_OR_RETURN(const Value key, Evaluate(*operands[1]));
      return GetItem(value, key, machine_);
    }
    case Kind::kCall: {
      if (value.undefined() != nullptr) return UndefinedError(*value.undefined());
      if (value.callable() == nullptr) {
        return InvalidArgument("an object of type '{}' cannot be called", value.type());
      }
      ASSIGN_OR_RETURN(Arguments arguments, EvaluateArguments(expression.call));
      return value.callable()->call(machine_, std::move(arguments));
    }
    case Kind::kTest: {
      if (expression.test == nullptr) {
        return Unimplemented("the test '{}' is not supported", expression.text);
      }
      ASSIGN_OR_RETURN(Arguments arguments, EvaluateArguments(expression.call));
      ASSIGN_OR_RETURN(const bool holds,
                       expression.test->run(machine_, value, std::move(arguments)));
      return Value(holds);
    }
    case Kind::kNot:
      return Value(!IsTrue(value));
    case Kind::kNegative:
      return Negate(value);
    case Kind::kPositive:
      return Plus(value);
    case Kind::kAnd:
      return IsTrue(value) ? Evaluate(*operands[1]) : Result(value);
    case Kind::kOr:
      return IsTrue(value) ? Result(value) : Evaluate(*operands[1]);
    default: {
      ASSIGN_OR_RETURN(const Value right, Evaluate(*operands[1]));
      return Calculate(expression.binary, value, right, machine_);
    }
  }
}

Evaluator::Result Evaluator::EvaluateVariable(const Expression& expression) {
  for (const Scope* scope = scope_.get(); scope != nullptr; scope = scope->parent.get()) {
    RETURN_IF_ERROR(machine_.Spend(scope->variables.size() / 32));
    if (const Value* found = scope->Find(expression.variable)) return *found;
  }
  RETURN_IF_ERROR(machine_.SpendBytes(expression.text.size()));
  return Value::MakeUndefined(fmt::format("'{}' is undefined", expression.text));
}

Evaluator::Result Evaluator::EvaluateRow(const Expression& expression) {
  std::vector<Value> items;
  items.reserve(expression.operands.size());
  for (const ExpressionPtr& operand : expression.operands) {
    ASSIGN_OR_RETURN(Value item, Evaluate(*operand));
    items.push_back(std::move(item));
  }
  const bool tuple = expression.kind == Expression::Kind::kTuple;
  return MakeList(std::move(items), tuple ? List::Kind::kTuple : List::Kind::kList);
}

Evaluator::Result Evaluator::EvaluateDict(const Expression& expression) {
  auto dict = std::make_shared<Dict>();
  for (size_t i = 0; i + 1 < expression.operands.size(); i += 2) {
    ASSIGN_OR_RETURN(Value key, Evaluate(*expression.operands[i]));
    ASSIGN_OR_RETURN(Value value, Evaluate(*expression.operands[i + 1]));
    RETURN_IF_ERROR(machine_.SpendOnReading(key));
    RETURN_IF_ERROR(dict->Set(std::move(key), std::move(value)));
  }
  return Value(std::shared_ptr<const Dict>(std::move(dict)));
}

Evaluator::Result Evaluator::EvaluateSlice(const Expression& expression) {
  ASSIGN_OR_RETURN(const Value object, Evaluate(*expression.operands[0]));
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    if (expression.operands[i + 1] == nullptr) continue;
    ASSIGN_OR_RETURN(bounds[i], Evaluate(*expression.operands[i + 1]));
  }
  return GetSlice(object, {bounds[0], bounds[1], bounds[2]}, machine_);
}

// a < b < c: each operand is evaluated once, and none after the first comparison that fails.
Evaluator::Result Evaluator::EvaluateCompare(const Expression& expression) {
  ASSIGN_OR_RETURN(Value left, Evaluate(*expression.operands[0]));
  for (size_t i = 0; i < expression.comparisons.size(); ++i) {
    ASSIGN_OR_RETURN(Value right, Evaluate(*expression.operands[i + 1]));
    ASSIGN_OR_RETURN(const bool holds, Compare(expression.comparisons[i], left, right, machine_));
    if (!holds) return Value(false);
    left = std::move(right);
  }
  return Value(true);
}

Evaluator::Result Evaluator::EvaluateConcatenation(const Expression& expression) {
  Text joined;
  for (const ExpressionPtr& operand : expression.operands) {
    ASSIGN_OR_RETURN(const Value value, Evaluate(*operand));
    ASSIGN_OR_RETURN(const Text text, Str(value, machine_));
    joined.Append(text);
  }
  return Value(std::move(joined));
}

absl::StatusOr<Arguments> Evaluator::EvaluateArguments(const Call& call) {
  Arguments arguments;
  for (const ExpressionPtr& expression : call.positional) {
    ASSIGN_OR_RETURN(Value value, Evaluate(*expression));
    arguments.positional.push_back(std::move(value));
  }
  for (const auto& [name, expression] : call.named) {
    ASSIGN_OR_RETURN(Value value, Evaluate(*expression));
    arguments.named.emplace_back(Text(name), std::move(value));
  }
  if (call.more_positional != nullptr) {
    ASSIGN_OR_RETURN(const Value more, Evaluate(*call.more_positional));
    ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(more, machine_));
    for (Value& item : items) arguments.positional.push_back(std::move(item));
  }
  if (call.more_named != nullptr) {
    ASSIGN_OR_RETURN(const Value more, Evaluate(*call.more_named));
    if (more.dict() == nullptr) return InvalidArgument("** wants a dict, not '{}'", more.type());
    RETURN_IF_ERROR(machine_.Spend(more.dict()->entries().size()));
    for (const auto& [key, value] : more.dict()->entries()) {
      if (key.text() == nullptr) return InvalidArgument("** wants keys that are strings");
      RETURN_IF_ERROR(machine_.SpendBytes(key.text()->size()));
      arguments.named.emplace_back(*key.text(), value);
    }
  }
  return arguments;
}

Evaluator::Result Evaluator::EvaluateFilter(const Expression& expression, const Value* input) {
  RETURN_IF_ERROR(machine_.Spend());
  Value value;
  if (expression.operands[0] == nullptr) {
    value = *input;
  } else if (input != nullptr && expression.operands[0]->kind == Expression::Kind::kFilter) {
    ASSIGN_OR_RETURN(value, EvaluateFilter(*expression.operands[0], input));
  } else {
    ASSIGN_OR_RETURN(value, Evaluate(*expression.operands[0]));
  }
  if (expression.filter == nullptr) {
    if (!failed_at_) failed_at_ = expression.at;
    return Unimplemented("the filter '{}' is not supported", expression.text);
  }
  ASSIGN_OR_RETURN(Arguments arguments, EvaluateArguments(expression.call));
  Result result = expression.filter->run(machine_, value, std::move(arguments));
  if (!result.ok() && !failed_at_) failed_at_ = expression.at;
  return result;
}

}  // namespace tandem::jinja
