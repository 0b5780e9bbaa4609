#include "model/chat/jinja/evaluator.h"

#include <algorithm>

#include "base/status.h"
#include "model/chat/jinja/loop.h"
#include "model/chat/jinja/operators.h"
#include "model/chat/jinja/print.h"
#include "model/chat/jinja/registry.h"

namespace tandem::jinja {
namespace {

// How deep expressions and bodies may be nested: a macro that calls itself ends here.
constexpr int kMaxDepth = 500;

// Hands a loop to the machine when it ends, if something else still holds it.
class LoopEnd {
 public:
  LoopEnd(Machine& machine, const std::shared_ptr<Loop>& loop) : machine_(machine), loop_(loop) {}
  ~LoopEnd() {
    if (loop_.use_count() > 1) machine_.KeepLoop(loop_);
  }
  LoopEnd(const LoopEnd&) = delete;
  LoopEnd& operator=(const LoopEnd&) = delete;

 private:
  Machine& machine_;
  const std::shared_ptr<Loop>& loop_;
};

}  // namespace

absl::StatusOr<Text> Render(const Program& program, const Variables& variables, Machine& machine) {
  return Evaluator(program, machine).Run(variables);
}

void Scope::Set(int variable, Value value) {
  for (auto& [name, old] : variables) {
    if (name != variable) continue;
    old = std::move(value);
    return;
  }
  variables.emplace_back(variable, std::move(value));
}

const Value* Scope::Find(int variable) const {
  for (const auto& [name, value] : variables) {
    if (name == variable) return &value;
  }
  return nullptr;
}

Evaluator::~Evaluator() {
  for (const auto& scope : captured_) scope->variables.clear();
}

absl::StatusOr<Text> Evaluator::Run(const Variables& variables) {
  scope_ = std::make_shared<Scope>();
  for (const FunctionEntry& function : Functions()) {
    const int number = program_.symbols.Find(function.name);
    if (number < 0) continue;
    auto callable = std::make_shared<Callable>();
    callable->name = function.name;
    callable->call = [function](Machine& machine, Arguments arguments) -> Result {
      if (function.run == nullptr) {
        return Unimplemented("the function '{}' is not supported", function.name);
      }
      return function.run(machine, std::move(arguments));
    };
    scope_->Set(number, Value(std::shared_ptr<const Callable>(std::move(callable))));
  }
  for (const auto& [name, value] : variables) {
    const int number = program_.symbols.Find(name);
    if (number >= 0) scope_->Set(number, value);
  }
  const absl::Status status = RunBody(program_.body).status();
  if (status.ok()) return std::move(out_);
  const std::string_view message(status.message().data(), status.message().size());
  if (IsRaised(status)) return InvalidArgument("{}", message);
  return absl::Status(status.code(),
                      fmt::format("{}{}", Describe(failed_at_.value_or(Position())), message));
}

absl::StatusOr<Evaluator::Flow> Evaluator::RunBody(const Body& body) {
  if (++depth_ > kMaxDepth) {
    return InvalidArgument("calls and blocks are nested more than {} deep", kMaxDepth);
  }
  for (const Statement& statement : body) {
    absl::StatusOr<Flow> flow = RunStatement(statement);
    if (!flow.ok() && !failed_at_) failed_at_ = statement.at;
    if (!flow.ok() || *flow != Flow::kNext) {
      --depth_;
      return flow;
    }
  }
  --depth_;
  return Flow::kNext;
}

absl::StatusOr<Evaluator::Flow> Evaluator::RunStatement(const Statement& statement) {
  using Kind = Statement::Kind;
  RETURN_IF_ERROR(machine_.Spend());
  switch (statement.kind) {
    case Kind::kData:
      RETURN_IF_ERROR(machine_.SpendBytes(statement.data.size()));
      out_.Append(statement.data);
      return Flow::kNext;
    case Kind::kPrint: {
      ASSIGN_OR_RETURN(const Value value, Evaluate(*statement.value));
      RETURN_IF_ERROR(Print(value));
      return Flow::kNext;
    }
    case Kind::kIf:
      return RunIf(statement);
    case Kind::kFor:
      return RunFor(statement);
    case Kind::kSet: {
      ASSIGN_OR_RETURN(Value value, Evaluate(*statement.value));
      RETURN_IF_ERROR(Assign(statement.target, std::move(value)));
      return Flow::kNext;
    }
    case Kind::kSetBlock:
    case Kind::kFilterBlock: {
      ASSIGN_OR_RETURN(Text text, Capture(statement.body));
      Value value(std::move(text));
      if (statement.value != nullptr) {
        ASSIGN_OR_RETURN(value, EvaluateFilter(*statement.value, &value));
      }
      RETURN_IF_ERROR(statement.kind == Kind::kSetBlock ? Assign(statement.target, std::move(value))
                                                        : Print(value));
      return Flow::kNext;
    }
    case Kind::kMacro:
      scope_->Set(statement.variable, MakeMacro(*statement.macro));
      return Flow::kNext;
    case Kind::kCall: {
      const Expression& call = *statement.value;
      ASSIGN_OR_RETURN(const Value function, Evaluate(*call.operands[0]));
      ASSIGN_OR_RETURN(Arguments arguments, EvaluateArguments(call.call));
      arguments.named.emplace_back(Text("caller"), MakeMacro(*statement.macro));
      if (function.callable() == nullptr) return InvalidArgument("what is called is no macro");
      ASSIGN_OR_RETURN(const Value value,
                       function.callable()->call(machine_, std::move(arguments)));
      RETURN_IF_ERROR(Print(value));
      return Flow::kNext;
    }
    case Kind::kWith:
      RETURN_IF_ERROR(RunWith(statement));
      return Flow::kNext;
    case Kind::kBreak:
      return Flow::kBreak;
    case Kind::kContinue:
      return Flow::kContinue;
  }
  return Flow::kNext;
}

absl::Status Evaluator::Print(const Value& value) {
  if (const Text* text = value.text()) {
    RETURN_IF_ERROR(machine_.SpendBytes(text->size()));
    out_.Append(*text);
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const Text text, Str(value, machine_));
  out_.Append(text);
  return absl::OkStatus();
}

absl::StatusOr<Evaluator::Flow> Evaluator::RunIf(const Statement& statement) {
  for (const Branch& branch : statement.branches) {
    if (branch.condition != nullptr) {
      ASSIGN_OR_RETURN(const Value condition, Evaluate(*branch.condition));
      if (!IsTrue(condition)) continue;
    }
    return RunBody(branch.body);
  }
  return Flow::kNext;
}

absl::StatusOr<Evaluator::Flow> Evaluator::RunFor(const Statement& statement) {
  ASSIGN_OR_RETURN(const Value iterable, Evaluate(*statement.value));
  ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(iterable, machine_));
  const std::shared_ptr<Scope> outer = scope_;
  Loop::Filter filter;
  if (statement.filter != nullptr) {
    filter = [this, &statement, outer](const Value& item) -> absl::StatusOr<bool> {
      const std::shared_ptr<Scope> current = std::exchange(scope_, std::make_shared<Scope>());
      scope_->parent = outer;
      scope_->Set(program_.loop,
                  Value::MakeUndefined("'loop' is undefined: a loop's filter has no loop"));
      absl::Status status = Assign(statement.target, item);
      Result taken = status.ok() ? Evaluate(*statement.filter) : Result(status);
      scope_ = current;
      RETURN_IF_ERROR(taken.status());
      return IsTrue(*taken);
    };
  }
  const auto loop = std::make_shared<Loop>(std::move(items), std::move(filter));
  const LoopEnd end(machine_, loop);
  bool completed_one = false;
  while (true) {
    ASSIGN_OR_RETURN(std::optional<Value> item, loop->Next());
    if (!item) break;
    RETURN_IF_ERROR(machine_.Spend());
    scope_ = std::make_shared<Scope>();
    scope_->parent = outer;
    scope_->Set(program_.loop, Value(loop));
    RETURN_IF_ERROR(Assign(statement.target, *std::move(item)));
    ASSIGN_OR_RETURN(const Flow flow, RunBody(statement.body));
    scope_ = outer;
    if (flow == Flow::kBreak) break;
    completed_one = completed_one || flow == Flow::kNext;
  }
  scope_ = outer;
  // As in Jinja, the `else` of a loop also runs when every turn was cut short by break or continue.
  if (completed_one || statement.otherwise.empty()) return Flow::kNext;
  scope_ = std::make_shared<Scope>();
  scope_->parent = outer;
  ASSIGN_OR_RETURN(const Flow flow, RunBody(statement.otherwise));
  scope_ = outer;
  return flow;
}

absl::Status Evaluator::RunWith(const Statement& statement) {
  const std::shared_ptr<Scope> outer = scope_;
  const auto inner = std::make_shared<Scope>();
  inner->parent = outer;
  std::vector<Value> values;
  for (const ExpressionPtr& expression : statement.values) {
    ASSIGN_OR_RETURN(Value value, Evaluate(*expression));
    values.push_back(std::move(value));
  }
  scope_ = inner;
  for (size_t i = 0; i < values.size(); ++i) {
    RETURN_IF_ERROR(Assign(statement.targets[i], std::move(values[i])));
  }
  RETURN_IF_ERROR(RunBody(statement.body).status());
  scope_ = outer;
  return absl::OkStatus();
}

absl::StatusOr<Text> Evaluator::Capture(const Body& body) {
  const std::shared_ptr<Scope> outer = scope_;
  scope_ = std::make_shared<Scope>();
  scope_->parent = outer;
  Text text = std::exchange(out_, Text());
  RETURN_IF_ERROR(RunBody(body).status());
  std::swap(text, out_);
  scope_ = outer;
  return text;
}

absl::Status Evaluator::Assign(const Target& target, Value value) {
  if (target.is_row) {
    ASSIGN_OR_RETURN(std::vector<Value> items, Iterate(value, machine_));
    if (items.size() != target.row.size()) {
      return InvalidArgument("{} values cannot be assigned to {} names", items.size(),
                             target.row.size());
    }
    for (size_t i = 0; i < items.size(); ++i) {
      RETURN_IF_ERROR(Assign(target.row[i], std::move(items[i])));
    }
    return absl::OkStatus();
  }
  if (target.attribute.empty()) {
    RETURN_IF_ERROR(machine_.Spend(scope_->variables.size() / 32));
    scope_->Set(target.variable, std::move(value));
    return absl::OkStatus();
  }
  const Value* found = nullptr;
  for (const Scope* scope = scope_.get(); scope && !found; scope = scope->parent.get()) {
    found = scope->Find(target.variable);
  }
  if (found == nullptr || found->name_space() == nullptr) {
    return InvalidArgument("cannot assign the attribute '{}': '{}' is no namespace",
                           target.attribute, program_.symbols.Name(target.variable));
  }
  if (target.attribute.starts_with('_')) {
    return InvalidArgument("a namespace cannot have the attribute '{}'", target.attribute);
  }
  RETURN_IF_ERROR(machine_.Spend(found->name_space()->attributes.size() / 32));
  found->name_space()->Set(target.attribute, std::move(value));
  return absl::OkStatus();
}

Value Evaluator::MakeMacro(const Macro& macro) {
  captured_.push_back(scope_);
  auto callable = std::make_shared<Callable>();
  callable->name = macro.name;
  callable->call = [this, &macro, closure = scope_](Machine&, Arguments arguments) {
    return CallMacro(macro, closure, std::move(arguments));
  };
  return Value(std::shared_ptr<const Callable>(std::move(callable)));
}

absl::Status Evaluator::BindParameters(const Macro& macro, Arguments& arguments) {
  const size_t count = macro.parameters.size();
  const auto take_named = [&arguments](std::string_view name) -> std::optional<Value> {
    for (auto at = arguments.named.begin(); at != arguments.named.end(); ++at) {
      if (at->first.view() != name) continue;
      std::optional<Value> value = std::move(at->second);
      arguments.named.erase(at);
      return value;
    }
    return std::nullopt;
  };
  for (size_t i = 0; i < count; ++i) {
    std::optional<Value> value;
    if (i < arguments.positional.size()) {
      value = arguments.positional[i];
    } else {
      value = take_named(macro.parameter_names[i]);
    }
    if (!value && i + macro.defaults.size() >= count) {
      ASSIGN_OR_RETURN(value, Evaluate(*macro.defaults[i + macro.defaults.size() - count]));
    }
    scope_->Set(macro.parameters[i],
                value ? *std::move(value)
                      : Value::MakeUndefined(fmt::format("parameter '{}' was not provided",
                                                         macro.parameter_names[i])));
  }
  if (macro.wants_caller) {
    std::optional<Value> caller = take_named("caller");
    scope_->Set(program_.caller,
                caller ? *std::move(caller) : Value::MakeUndefined("No caller defined"));
  }
  if (macro.wants_named) {
    auto rest = std::make_shared<Dict>();
    for (auto& [name, value] : arguments.named) {
      RETURN_IF_ERROR(rest->Set(Value(std::move(name)), std::move(value)));
    }
    arguments.named.clear();
    scope_->Set(program_.kwargs, Value(std::shared_ptr<const Dict>(std::move(rest))));
  }
  if (!arguments.named.empty()) {
    return InvalidArgument("macro '{}' has no parameter '{}'", macro.name,
                           arguments.named[0].first.view());
  }
  std::vector<Value>& given = arguments.positional;
  given.erase(given.begin(), given.begin() + static_cast<int64_t>(std::min(count, given.size())));
  if (macro.wants_args) {
    ASSIGN_OR_RETURN(Value rest, MakeList(std::move(given), List::Kind::kTuple));
    scope_->Set(program_.varargs, std::move(rest));
  } else if (!given.empty()) {
    return InvalidArgument("macro '{}' takes at most {} arguments", macro.name, count);
  }
  return absl::OkStatus();
}

Evaluator::Result Evaluator::CallMacro(const Macro& macro, const std::shared_ptr<Scope>& closure,
                                       Arguments arguments) {
  const std::shared_ptr<Scope> caller = std::exchange(scope_, std::make_shared<Scope>());
  scope_->parent = closure;
  Text text = std::exchange(out_, Text());
  RETURN_IF_ERROR(BindParameters(macro, arguments));
  RETURN_IF_ERROR(RunBody(macro.body).status());
  std::swap(text, out_);
  scope_ = caller;
  return Value(std::move(text));
}

}  // namespace tandem::jinja
