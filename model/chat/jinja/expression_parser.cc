// The operators of expressions, from those that bind least to the signs.
#include <algorithm>

#include "model/chat/jinja/make_expression.h"
#include "model/chat/jinja/parser.h"

namespace tandem::jinja {
namespace {

constexpr int kMaxNesting = 60;

std::optional<CompareOp> TakeCompareOp(TokenStream& tokens) {
  constexpr std::pair<std::string_view, CompareOp> kOps[] = {
      {"==", CompareOp::kEqual},     {"!=", CompareOp::kNotEqual}, {"<", CompareOp::kLess},
      {"<=", CompareOp::kLessEqual}, {">", CompareOp::kGreater},   {">=", CompareOp::kGreaterEqual},
  };
  for (const auto& [symbol, op] : kOps) {
    if (tokens.SkipOperator(symbol)) return op;
  }
  if (tokens.SkipName("in")) return CompareOp::kIn;
  if (!tokens.current().IsName("not") || !tokens.next().IsName("in")) return std::nullopt;
  tokens.Take();
  tokens.Take();
  return CompareOp::kNotIn;
}

}  // namespace

int Surroundings::Load(std::string_view name) {
  const int number = program_.symbols.Number(name);
  program_.loaded.insert(number);
  for (Macro* macro : macros_) {
    macro->wants_caller = macro->wants_caller || name == "caller";
    macro->wants_args = macro->wants_args || name == "varargs";
    macro->wants_named = macro->wants_named || name == "kwargs";
  }
  return number;
}

ExpressionParser::Result ExpressionParser::Parse(Conditional conditional) {
  if (depth_ >= kMaxNesting) {
    return SyntaxError(tokens_.current().at, "the expression is nested more than {} deep",
                       kMaxNesting);
  }
  ++depth_;
  Result result = conditional == Conditional::kAllowed ? ParseConditional() : ParseOr();
  --depth_;
  return result;
}

ExpressionParser::Result ExpressionParser::ParseConditional() {
  ASSIGN_OR_RETURN(ExpressionPtr value, ParseOr());
  while (tokens_.current().IsName("if")) {
    const Position at = tokens_.Take().at;
    surroundings_.EnterBranch();
    absl::StatusOr<ExpressionPtr> condition = ParseOr();
    absl::StatusOr<ExpressionPtr> other = ExpressionPtr();
    if (condition.ok() && tokens_.SkipName("else")) other = Parse();
    surroundings_.LeaveBranch();
    RETURN_IF_ERROR(condition.status());
    RETURN_IF_ERROR(other.status());
    ASSIGN_OR_RETURN(
        value, MakeExpression(Kind::kConditional, at,
                              RowOf(*std::move(condition), std::move(value), *std::move(other))));
  }
  return value;
}

ExpressionParser::Result ExpressionParser::ParseOr() {
  ASSIGN_OR_RETURN(ExpressionPtr left, ParseAnd());
  while (tokens_.current().IsName("or")) {
    const Position at = tokens_.Take().at;
    ASSIGN_OR_RETURN(ExpressionPtr right, ParseAnd());
    ASSIGN_OR_RETURN(left, MakeExpression(Kind::kOr, at, RowOf(std::move(left), std::move(right))));
  }
  return left;
}

ExpressionParser::Result ExpressionParser::ParseAnd() {
  ASSIGN_OR_RETURN(ExpressionPtr left, ParseNot());
  while (tokens_.current().IsName("and")) {
    const Position at = tokens_.Take().at;
    ASSIGN_OR_RETURN(ExpressionPtr right, ParseNot());
    ASSIGN_OR_RETURN(left,
                     MakeExpression(Kind::kAnd, at, RowOf(std::move(left), std::move(right))));
  }
  return left;
}

ExpressionParser::Result ExpressionParser::ParseNot() {
  if (!tokens_.current().IsName("not")) return ParseCompare();
  const Position at = tokens_.Take().at;
  if (++depth_ > kMaxNesting) return SyntaxError(at, "too many 'not' in a row");
  Result operand = ParseNot();
  --depth_;
  RETURN_IF_ERROR(operand.status());
  return MakeExpression(Kind::kNot, at, RowOf(*std::move(operand)));
}

ExpressionParser::Result ExpressionParser::ParseCompare() {
  const Position at = tokens_.current().at;
  std::vector<ExpressionPtr> operands;
  std::vector<CompareOp> comparisons;
  while (true) {
    ASSIGN_OR_RETURN(ExpressionPtr operand, ParseArithmetic(Level::kSum));
    operands.push_back(std::move(operand));
    const std::optional<CompareOp> op = TakeCompareOp(tokens_);
    if (!op) break;
    comparisons.push_back(*op);
  }
  if (comparisons.empty()) return std::move(operands[0]);
  ASSIGN_OR_RETURN(ExpressionPtr compare, MakeExpression(Kind::kCompare, at, std::move(operands)));
  compare->comparisons = std::move(comparisons);
  return compare;
}

// Jinja's powers associate to the left, unlike Python's.
ExpressionParser::Result ExpressionParser::ParseArithmetic(Level level) {
  struct Operator {
    std::string_view symbol;
    Level level;
    BinaryOp op;
  };
  constexpr Operator kOperators[] = {
      {"+", Level::kSum, BinaryOp::kAdd},
      {"-", Level::kSum, BinaryOp::kSubtract},
      {"*", Level::kProduct, BinaryOp::kMultiply},
      {"/", Level::kProduct, BinaryOp::kDivide},
      {"//", Level::kProduct, BinaryOp::kFloorDivide},
      {"%", Level::kProduct, BinaryOp::kModulo},
      {"**", Level::kPower, BinaryOp::kPower},
  };
  if (level == Level::kConcatenate) return ParseConcatenate();
  if (level == Level::kUnary) return ParseUnary();
  const auto next = static_cast<Level>(static_cast<uint8_t>(level) + 1);
  ASSIGN_OR_RETURN(ExpressionPtr left, ParseArithmetic(next));
  while (true) {
    const auto op =
        std::find_if(std::begin(kOperators), std::end(kOperators), [&](const auto& each) {
          return each.level == level && tokens_.current().IsOperator(each.symbol);
        });
    if (op == std::end(kOperators)) return left;
    const Position at = tokens_.Take().at;
    ASSIGN_OR_RETURN(ExpressionPtr right, ParseArithmetic(next));
    ASSIGN_OR_RETURN(left,
                     MakeExpression(Kind::kBinary, at, RowOf(std::move(left), std::move(right))));
    left->binary = op->op;
  }
}

ExpressionParser::Result ExpressionParser::ParseConcatenate() {
  const Position at = tokens_.current().at;
  std::vector<ExpressionPtr> operands;
  do {
    ASSIGN_OR_RETURN(ExpressionPtr operand, ParseArithmetic(Level::kProduct));
    operands.push_back(std::move(operand));
  } while (tokens_.SkipOperator("~"));
  if (operands.size() == 1) return std::move(operands[0]);
  return MakeExpression(Kind::kConcatenate, at, std::move(operands));
}

ExpressionParser::Result ExpressionParser::ParseUnary(Filters filters) {
  const Token& token = tokens_.current();
  ExpressionPtr value;
  if (token.IsOperator("-") || token.IsOperator("+")) {
    const Token sign = tokens_.Take();
    if (++depth_ > kMaxNesting) return SyntaxError(sign.at, "too many signs in a row");
    Result operand = ParseUnary(Filters::kExcluded);
    --depth_;
    RETURN_IF_ERROR(operand.status());
    ASSIGN_OR_RETURN(value, MakeExpression(sign.text == "-" ? Kind::kNegative : Kind::kPositive,
                                           sign.at, RowOf(*std::move(operand))));
  } else {
    ASSIGN_OR_RETURN(value, ParsePrimary());
  }
  ASSIGN_OR_RETURN(value, ParsePostfix(std::move(value)));
  if (filters == Filters::kExcluded) return value;
  return ParseFilters(std::move(value));
}

}  // namespace tandem::jinja
