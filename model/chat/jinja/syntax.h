#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/container/flat_hash_map.h"
#include "absl/container/flat_hash_set.h"
#include "model/chat/jinja/lexer.h"
#include "model/chat/jinja/operators.h"
#include "model/chat/jinja/value.h"

namespace tandem::jinja {

// The tree of a parsed template. Variables are numbered, so that scopes compare integers.

struct Expression;
struct Statement;
struct FilterEntry;  // registry.h
struct TestEntry;
using ExpressionPtr = std::unique_ptr<Expression>;
using Body = std::vector<Statement>;

struct Call {
  std::vector<ExpressionPtr> positional;
  std::vector<std::pair<std::string, ExpressionPtr>> named;
  ExpressionPtr more_positional;  // *args
  ExpressionPtr more_named;       // **kwargs
};

struct Expression {
  enum class Kind : uint8_t {
    kConstant,
    kVariable,
    kList,
    kTuple,
    kDict,         // operands: key, value, key, value ...
    kAttribute,    // operand.text
    kItem,         // operands[0][operands[1]]
    kSlice,        // operands[0][operands[1]:operands[2]:operands[3]], any of the three null
    kCall,         // operand(call)
    kFilter,       // operand|text(call); a null operand is the body of a filter block
    kTest,         // operand is text(call)
    kConditional,  // operands: condition, value, other value or null
    kNot,
    kNegative,
    kPositive,
    kAnd,
    kOr,
    kConcatenate,
    kBinary,
    kCompare  // operands[0] comparisons[0] operands[1] comparisons[1] operands[2] ...
  };

  Kind kind;
  Position at;
  int height = 1;  // levels of the tree that begins here
  Value constant;
  int variable = -1;
  std::string text;
  std::vector<ExpressionPtr> operands;
  Call call;
  BinaryOp binary = BinaryOp::kAdd;
  std::vector<CompareOp> comparisons;
  const FilterEntry* filter = nullptr;  // null: not supported, found in a branch
  const TestEntry* test = nullptr;
};

// What is assigned to: a variable, an attribute of a namespace, or a row of targets.
struct Target {
  Position at;
  int variable = -1;
  std::string attribute;  // of the namespace that the variable holds; empty: the variable itself
  std::vector<Target> row;
  bool is_row = false;
};

struct Macro {
  std::string name;
  std::vector<int> parameters;
  std::vector<std::string> parameter_names;
  std::vector<ExpressionPtr> defaults;  // default values of the last parameters
  Body body;
  // Whether the body mentions the special variables caller, varargs and kwargs.
  bool wants_caller = false;
  bool wants_args = false;
  bool wants_named = false;
};

struct Branch {
  ExpressionPtr condition;  // null: the branch `else`
  Body body;
};

struct Statement {
  enum class Kind : uint8_t {
    kData,
    kPrint,
    kIf,
    kFor,          // fields: target, value, filter, body, otherwise
    kSet,          // fields: target, value
    kSetBlock,     // fields: target, value (a chain of filters, or null), body
    kMacro,        // fields: macro, and the variable it is named by
    kCall,         // fields: value (a call), macro (the caller)
    kFilterBlock,  // fields: value (a chain of filters, or null), body
    kWith,         // fields: targets, values, body
    kBreak,
    kContinue
  };

  Kind kind;
  Position at;
  Text data;
  ExpressionPtr value;
  std::vector<Branch> branches;
  Target target;
  ExpressionPtr filter;
  Body body;
  Body otherwise;
  std::unique_ptr<Macro> macro;
  int variable = -1;
  std::vector<Target> targets;
  std::vector<ExpressionPtr> values;
};

// Numbers the variables of a template.
class Symbols {
 public:
  int Number(std::string_view name) {
    const auto [at, added] = numbers_.try_emplace(std::string(name), names_.size());
    if (added) names_.emplace_back(name);
    return static_cast<int>(at->second);
  }
  // The number of a variable; -1 for a name that the template does not mention.
  int Find(std::string_view name) const {
    const auto at = numbers_.find(std::string(name));
    return at == numbers_.end() ? -1 : static_cast<int>(at->second);
  }
  const std::string& Name(int number) const { return names_[static_cast<size_t>(number)]; }

 private:
  absl::flat_hash_map<std::string, size_t> numbers_;
  std::vector<std::string> names_;
};

// A parsed template: immutable and thread-safe.
struct Program {
  Body body;
  Symbols symbols;
  int loop = -1, caller = -1, varargs = -1, kwargs = -1;  // numbers of special variables
  absl::flat_hash_set<int> loaded;                        // variables whose value is used
};

// Parses a template. INVALID_ARGUMENT for what is not Jinja, UNIMPLEMENTED for what this build does
// not have; both with line and column.
absl::StatusOr<std::unique_ptr<const Program>> Parse(std::string_view source);

}  // namespace tandem::jinja
