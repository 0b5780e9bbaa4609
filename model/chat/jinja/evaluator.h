#pragma once

#include <memory>
#include <optional>
#include <string_view>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "model/chat/jinja/machine.h"
#include "model/chat/jinja/syntax.h"

namespace tandem::jinja {

using Variables = std::vector<std::pair<std::string_view, Value>>;

// The text that a template makes of its variables. INVALID_ARGUMENT with line and column for what
// fails, or with the template's own text where that raises an exception.
absl::StatusOr<Text> Render(const Program& program, const Variables& variables, Machine& machine);

// The variables of a block, and the blocks around it.
struct Scope {
  std::shared_ptr<Scope> parent;
  std::vector<std::pair<int, Value>> variables;

  void Set(int variable, Value value);
  const Value* Find(int variable) const;
};

// Runs one program once.
class Evaluator {
 public:
  Evaluator(const Program& program, Machine& machine) : program_(program), machine_(machine) {}
  ~Evaluator();
  Evaluator(const Evaluator&) = delete;
  Evaluator& operator=(const Evaluator&) = delete;

  absl::StatusOr<Text> Run(const Variables& variables);

 private:
  using Result = absl::StatusOr<Value>;
  enum class Flow : uint8_t { kNext, kBreak, kContinue };

  // Statements.
  absl::StatusOr<Flow> RunBody(const Body& body);
  absl::StatusOr<Flow> RunStatement(const Statement& statement);
  absl::StatusOr<Flow> RunIf(const Statement& statement);
  absl::StatusOr<Flow> RunFor(const Statement& statement);
  absl::Status RunWith(const Statement& statement);
  // Runs a body in a scope of its own and returns the text that it writes.
  absl::StatusOr<Text> Capture(const Body& body);
  absl::Status Assign(const Target& target, Value value);
  absl::Status Print(const Value& value);
  Value MakeMacro(const Macro& macro);
  Result CallMacro(const Macro& macro, const std::shared_ptr<Scope>& closure, Arguments arguments);
  absl::Status BindParameters(const Macro& macro, Arguments& arguments);

  // Expressions: evaluate_expression.cc.
  Result Evaluate(const Expression& expression);
  Result EvaluateKind(const Expression& expression);
  // Evaluates an operation whose first operand has the value `value`.
  Result EvaluateOperation(const Expression& expression, const Value& value);
  Result EvaluateVariable(const Expression& expression);
  Result EvaluateRow(const Expression& expression);
  Result EvaluateDict(const Expression& expression);
  Result EvaluateSlice(const Expression& expression);
  Result EvaluateCompare(const Expression& expression);
  Result EvaluateConcatenation(const Expression& expression);
  absl::StatusOr<Arguments> EvaluateArguments(const Call& call);
  // Applies a filter. `input` is the text of a block that is filtered, and null elsewhere.
  Result EvaluateFilter(const Expression& expression, const Value* input);

  const Program& program_;
  Machine& machine_;
  std::shared_ptr<Scope> scope_;
  Text out_;
  int depth_ = 0;
  std::optional<Position> failed_at_;
  // The scopes that macros are defined in. Macros hold them, and they may hold the macros; the
  // destructor empties them.
  std::vector<std::shared_ptr<Scope>> captured_;
};

}  // namespace tandem::jinja
