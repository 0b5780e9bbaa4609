#pragma once

#include <initializer_list>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "base/status.h"
#include "model/chat/jinja/syntax.h"

namespace tandem::jinja {

// The tokens of a template, and the parser's place in them.
class TokenStream {
 public:
  explicit TokenStream(std::vector<Token> tokens) : tokens_(std::move(tokens)) {}

  const Token& current() const { return tokens_[at_]; }
  const Token& next() const { return tokens_[std::min(at_ + 1, tokens_.size() - 1)]; }
  Token Take();
  bool SkipOperator(std::string_view op);
  bool SkipName(std::string_view name);
  absl::Status ExpectOperator(std::string_view op);
  absl::Status Expect(Token::Kind kind, std::string_view what);
  absl::StatusOr<Token> ExpectName();
  // Takes a name, or several names with dots between them.
  absl::StatusOr<std::string> ExpectDottedName();
  // The error that the current token is not what is `wanted`.
  absl::Status Unexpected(std::string_view wanted) const;

 private:
  std::vector<Token> tokens_;
  size_t at_ = 0;
};

template <typename... Args>
absl::Status SyntaxError(Position at, fmt::format_string<Args...> format, Args&&... args) {
  return InvalidArgument("{}{}", Describe(at), fmt::format(format, std::forward<Args>(args)...));
}

// What surrounds the place that the parser reads: macros and branches.
class Surroundings {
 public:
  explicit Surroundings(Program& program) : program_(program) {}

  // The number of a variable whose value is used here.
  int Load(std::string_view name);
  // Notes that a macro is being read, whose body may mention caller, varargs and kwargs.
  void EnterMacro(Macro* macro) { macros_.push_back(macro); }
  void LeaveMacro() { macros_.pop_back(); }
  // Notes that a branch is being read. Within branches, a feature that is not supported fails only
  // when it is reached.
  void EnterBranch() { ++branches_; }
  void LeaveBranch() { --branches_; }
  bool in_branch() const { return branches_ > 0; }

 private:
  Program& program_;
  std::vector<Macro*> macros_;
  int branches_ = 0;
};

// Reads expressions by the grammar of Jinja 3.1.
class ExpressionParser {
 public:
  ExpressionParser(TokenStream& tokens, Surroundings& surroundings)
      : tokens_(tokens), surroundings_(surroundings) {}

  enum class Conditional : uint8_t { kAllowed, kExcluded };
  // Parses a whole expression, up to the form "value if condition else other".
  absl::StatusOr<ExpressionPtr> Parse(Conditional conditional = Conditional::kAllowed);
  // Parses an expression, or a tuple without parentheses, which also ends before the name `end`.
  absl::StatusOr<ExpressionPtr> ParseTuple(Conditional conditional = Conditional::kAllowed,
                                           std::string_view end = "");
  // Parses the filters after a value: |filter|filter. A null value stands for the body of a filter
  // block.
  absl::StatusOr<ExpressionPtr> ParseFilters(ExpressionPtr value);
  absl::StatusOr<ExpressionPtr> ParseFilter(ExpressionPtr value);

 private:
  using Result = absl::StatusOr<ExpressionPtr>;
  using Kind = Expression::Kind;

  Result ParseConditional();
  Result ParseOr();
  Result ParseAnd();
  Result ParseNot();
  Result ParseCompare();
  // The levels of arithmetic, from the operators that bind least.
  enum class Level : uint8_t { kSum, kConcatenate, kProduct, kPower, kUnary };
  Result ParseArithmetic(Level level);
  Result ParseConcatenate();
  enum class Filters : uint8_t { kAllowed, kExcluded };
  Result ParseUnary(Filters filters = Filters::kAllowed);
  Result ParsePrimary();
  Result ParseNamed();
  Result ParseItems(std::string_view open, std::string_view close);
  Result ParseParenthesized();
  Result ParsePostfix(ExpressionPtr value);
  Result ParseAttribute(ExpressionPtr value);
  Result ParseSubscript(ExpressionPtr value);
  Result ParseCallOf(ExpressionPtr value);
  absl::StatusOr<Call> ParseCall();
  absl::Status ParseArgument(Call& call);
  Result ParseTest(ExpressionPtr value);

  TokenStream& tokens_;
  Surroundings& surroundings_;
  int depth_ = 0;
};

}  // namespace tandem::jinja
