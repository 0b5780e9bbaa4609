#include <algorithm>

#include "model/chat/jinja/parser.h"
#include "model/chat/jinja/registry.h"

namespace tandem::jinja {
namespace {

// The largest height of an expression's tree. Bounds the recursion of the parser, the evaluator and
// the destructor.
constexpr int kMaxHeight = 150;
constexpr int kMaxNesting = 60;

template <typename... Operands>
std::vector<ExpressionPtr> RowOf(Operands... operands) {
  std::vector<ExpressionPtr> row;
  (row.push_back(std::move(operands)), ...);
  return row;
}

int HeightOf(const Call& call) {
  int height = 0;
  const auto include = [&height](const ExpressionPtr& argument) {
    if (argument != nullptr) height = std::max(height, argument->height);
  };
  for (const auto& argument : call.positional) include(argument);
  for (const auto& [name, argument] : call.named) include(argument);
  include(call.more_positional);
  include(call.more_named);
  return height;
}

absl::StatusOr<ExpressionPtr> Make(Expression::Kind kind, Position at,
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

Token TokenStream::Take() {
  Token token = tokens_[at_];
  if (at_ + 1 < tokens_.size()) ++at_;
  return token;
}

bool TokenStream::SkipOperator(std::string_view op) {
  if (!current().IsOperator(op)) return false;
  Take();
  return true;
}

bool TokenStream::SkipName(std::string_view name) {
  if (!current().IsName(name)) return false;
  Take();
  return true;
}

absl::Status TokenStream::Unexpected(std::string_view wanted) const {
  const Token& token = current();
  switch (token.kind) {
    case Token::Kind::kEnd:
      return SyntaxError(token.at, "expected {}, found the end of the template", wanted);
    case Token::Kind::kBlockEnd:
    case Token::Kind::kVariableEnd:
      return SyntaxError(token.at, "expected {}, found the end of the tag", wanted);
    case Token::Kind::kString:
      return SyntaxError(token.at, "expected {}, found a string", wanted);
    default:
      return SyntaxError(token.at, "expected {}, found '{}'", wanted, token.text);
  }
}

absl::Status TokenStream::ExpectOperator(std::string_view op) {
  if (SkipOperator(op)) return absl::OkStatus();
  return Unexpected(fmt::format("'{}'", op));
}

absl::Status TokenStream::Expect(Token::Kind kind, std::string_view what) {
  if (current().kind != kind) return Unexpected(what);
  Take();
  return absl::OkStatus();
}

absl::StatusOr<Token> TokenStream::ExpectName() {
  if (current().kind != Token::Kind::kName) return Unexpected("a name");
  return Take();
}

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
    ASSIGN_OR_RETURN(value,
                     Make(Kind::kConditional, at,
                          RowOf(*std::move(condition), std::move(value), *std::move(other))));
  }
  return value;
}

ExpressionParser::Result ExpressionParser::ParseOr() {
  ASSIGN_OR_RETURN(ExpressionPtr left, ParseAnd());
  while (tokens_.current().IsName("or")) {
    const Position at = tokens_.Take().at;
    ASSIGN_OR_RETURN(ExpressionPtr right, ParseAnd());
    ASSIGN_OR_RETURN(left, Make(Kind::kOr, at, RowOf(std::move(left), std::move(right))));
  }
  return left;
}

ExpressionParser::Result ExpressionParser::ParseAnd() {
  ASSIGN_OR_RETURN(ExpressionPtr left, ParseNot());
  while (tokens_.current().IsName("and")) {
    const Position at = tokens_.Take().at;
    ASSIGN_OR_RETURN(ExpressionPtr right, ParseNot());
    ASSIGN_OR_RETURN(left, Make(Kind::kAnd, at, RowOf(std::move(left), std::move(right))));
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
  return Make(Kind::kNot, at, RowOf(*std::move(operand)));
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
  ASSIGN_OR_RETURN(ExpressionPtr compare, Make(Kind::kCompare, at, std::move(operands)));
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
    ASSIGN_OR_RETURN(left, Make(Kind::kBinary, at, RowOf(std::move(left), std::move(right))));
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
  return Make(Kind::kConcatenate, at, std::move(operands));
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
    ASSIGN_OR_RETURN(value, Make(sign.text == "-" ? Kind::kNegative : Kind::kPositive, sign.at,
                                 RowOf(*std::move(operand))));
  } else {
    ASSIGN_OR_RETURN(value, ParsePrimary());
  }
  ASSIGN_OR_RETURN(value, ParsePostfix(std::move(value)));
  if (filters == Filters::kExcluded) return value;
  return ParseFilters(std::move(value));
}

ExpressionParser::Result ExpressionParser::ParseNamed() {
  const Token token = tokens_.Take();
  const std::string& name = token.text;
  const bool truth = name == "true" || name == "True";
  const bool constant = truth || name == "false" || name == "False";
  const bool none = name == "none" || name == "None";
  ASSIGN_OR_RETURN(ExpressionPtr value,
                   Make(constant || none ? Kind::kConstant : Kind::kVariable, token.at, {}));
  if (constant) {
    value->constant = Value(truth);
  } else if (!none) {
    value->variable = surroundings_.Load(name);
    value->text = name;
  }
  return value;
}

ExpressionParser::Result ExpressionParser::ParsePrimary() {
  const Token& token = tokens_.current();
  if (token.kind == Token::Kind::kName) return ParseNamed();
  if (token.kind == Token::Kind::kNumber) {
    ASSIGN_OR_RETURN(ExpressionPtr value, Make(Kind::kConstant, token.at, {}));
    value->constant = tokens_.Take().number;
    return value;
  }
  if (token.kind == Token::Kind::kString) {
    ASSIGN_OR_RETURN(ExpressionPtr value, Make(Kind::kConstant, token.at, {}));
    Text text;
    while (tokens_.current().kind == Token::Kind::kString) text.Append(tokens_.Take().text);
    value->constant = Value(std::move(text));
    return value;
  }
  if (token.IsOperator("(")) return ParseParenthesized();
  if (token.IsOperator("[")) return ParseItems("[", "]");
  if (token.IsOperator("{")) return ParseItems("{", "}");
  return tokens_.Unexpected("an expression");
}

ExpressionParser::Result ExpressionParser::ParseParenthesized() {
  const Position at = tokens_.Take().at;
  if (tokens_.SkipOperator(")")) return Make(Kind::kTuple, at, {});
  ASSIGN_OR_RETURN(ExpressionPtr value, ParseTuple());
  RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
  return value;
}

ExpressionParser::Result ExpressionParser::ParseTuple(Conditional conditional,
                                                      std::string_view end) {
  const auto at_end = [&] {
    const Token& token = tokens_.current();
    return token.kind == Token::Kind::kVariableEnd || token.kind == Token::Kind::kBlockEnd ||
           token.IsOperator(")") || (!end.empty() && token.IsName(end));
  };
  const Position at = tokens_.current().at;
  std::vector<ExpressionPtr> items;
  bool is_tuple = false;
  while (!at_end()) {
    ASSIGN_OR_RETURN(ExpressionPtr item, Parse(conditional));
    items.push_back(std::move(item));
    if (!tokens_.SkipOperator(",")) break;
    is_tuple = true;
  }
  if (is_tuple) return Make(Kind::kTuple, at, std::move(items));
  if (items.empty()) return tokens_.Unexpected("an expression");
  return std::move(items[0]);
}

// Parses the items of a list, or of a dict, where each is a pair.
ExpressionParser::Result ExpressionParser::ParseItems(std::string_view open,
                                                      std::string_view close) {
  const Position at = tokens_.current().at;
  RETURN_IF_ERROR(tokens_.ExpectOperator(open));
  const bool dict = open == "{";
  std::vector<ExpressionPtr> items;
  bool first = true;
  while (!tokens_.current().IsOperator(close)) {
    if (!std::exchange(first, false)) RETURN_IF_ERROR(tokens_.ExpectOperator(","));
    if (tokens_.current().IsOperator(close)) break;
    ASSIGN_OR_RETURN(ExpressionPtr item, Parse());
    items.push_back(std::move(item));
    if (!dict) continue;
    RETURN_IF_ERROR(tokens_.ExpectOperator(":"));
    ASSIGN_OR_RETURN(ExpressionPtr value, Parse());
    items.push_back(std::move(value));
  }
  RETURN_IF_ERROR(tokens_.ExpectOperator(close));
  return Make(dict ? Kind::kDict : Kind::kList, at, std::move(items));
}

ExpressionParser::Result ExpressionParser::ParsePostfix(ExpressionPtr value) {
  while (true) {
    if (tokens_.current().IsOperator(".")) {
      ASSIGN_OR_RETURN(value, ParseAttribute(std::move(value)));
    } else if (tokens_.current().IsOperator("[")) {
      ASSIGN_OR_RETURN(value, ParseSubscript(std::move(value)));
    } else if (tokens_.current().IsOperator("(")) {
      ASSIGN_OR_RETURN(value, ParseCallOf(std::move(value)));
    } else {
      return value;
    }
  }
}

ExpressionParser::Result ExpressionParser::ParseAttribute(ExpressionPtr value) {
  const Position at = tokens_.Take().at;
  if (tokens_.current().kind == Token::Kind::kName) {
    ASSIGN_OR_RETURN(ExpressionPtr attribute, Make(Kind::kAttribute, at, RowOf(std::move(value))));
    attribute->text = tokens_.Take().text;
    return attribute;
  }
  if (tokens_.current().kind != Token::Kind::kNumber || tokens_.current().number.real()) {
    return tokens_.Unexpected("a name or a number");
  }
  ASSIGN_OR_RETURN(ExpressionPtr index, Make(Kind::kConstant, at, {}));
  index->constant = tokens_.Take().number;
  return Make(Kind::kItem, at, RowOf(std::move(value), std::move(index)));
}

ExpressionParser::Result ExpressionParser::ParseSubscript(ExpressionPtr value) {
  const Position at = tokens_.Take().at;
  std::vector<ExpressionPtr> parts;
  bool slice = false;
  while (parts.size() < 3) {
    ExpressionPtr part;
    if (!tokens_.current().IsOperator(":") && !tokens_.current().IsOperator("]")) {
      ASSIGN_OR_RETURN(part, Parse());
    }
    parts.push_back(std::move(part));
    if (!tokens_.SkipOperator(":")) break;
    slice = true;
  }
  if (tokens_.current().IsOperator(",")) {
    return Unimplemented("{}several subscripts in one pair of brackets are not supported",
                         Describe(at));
  }
  RETURN_IF_ERROR(tokens_.ExpectOperator("]"));
  if (slice) {
    parts.resize(3);
    return Make(
        Kind::kSlice, at,
        RowOf(std::move(value), std::move(parts[0]), std::move(parts[1]), std::move(parts[2])));
  }
  if (parts[0] == nullptr) return SyntaxError(at, "expected an expression in the brackets");
  return Make(Kind::kItem, at, RowOf(std::move(value), std::move(parts[0])));
}

absl::Status ExpressionParser::ParseArgument(Call& call) {
  const Position at = tokens_.current().at;
  const auto misplaced = [&] { return SyntaxError(at, "this argument must come earlier"); };
  if (tokens_.SkipOperator("*")) {
    if (call.more_positional != nullptr || call.more_named != nullptr) return misplaced();
    ASSIGN_OR_RETURN(call.more_positional, Parse());
    return absl::OkStatus();
  }
  if (tokens_.SkipOperator("**")) {
    if (call.more_named != nullptr) return misplaced();
    ASSIGN_OR_RETURN(call.more_named, Parse());
    return absl::OkStatus();
  }
  if (tokens_.current().kind == Token::Kind::kName && tokens_.next().IsOperator("=")) {
    if (call.more_named != nullptr) return misplaced();
    std::string name = tokens_.Take().text;
    tokens_.Take();
    ASSIGN_OR_RETURN(ExpressionPtr value, Parse());
    call.named.emplace_back(std::move(name), std::move(value));
    return absl::OkStatus();
  }
  if (call.more_positional != nullptr || call.more_named != nullptr || !call.named.empty()) {
    return misplaced();
  }
  ASSIGN_OR_RETURN(ExpressionPtr value, Parse());
  call.positional.push_back(std::move(value));
  return absl::OkStatus();
}

absl::StatusOr<Call> ExpressionParser::ParseCall() {
  RETURN_IF_ERROR(tokens_.ExpectOperator("("));
  Call call;
  bool first = true;
  while (!tokens_.current().IsOperator(")")) {
    if (!std::exchange(first, false)) RETURN_IF_ERROR(tokens_.ExpectOperator(","));
    if (tokens_.current().IsOperator(")")) break;
    RETURN_IF_ERROR(ParseArgument(call));
  }
  RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
  return call;
}

ExpressionParser::Result ExpressionParser::ParseCallOf(ExpressionPtr value) {
  const Position at = tokens_.current().at;
  ASSIGN_OR_RETURN(Call call, ParseCall());
  ASSIGN_OR_RETURN(ExpressionPtr result, Make(Kind::kCall, at, RowOf(std::move(value))));
  result->height = std::max(result->height, HeightOf(call) + 1);
  result->call = std::move(call);
  return result;
}

absl::StatusOr<std::string> TokenStream::ExpectDottedName() {
  ASSIGN_OR_RETURN(Token token, ExpectName());
  while (SkipOperator(".")) {
    ASSIGN_OR_RETURN(const Token part, ExpectName());
    token.text += "." + part.text;
  }
  return token.text;
}

ExpressionParser::Result ExpressionParser::ParseFilters(ExpressionPtr value) {
  while (true) {
    if (tokens_.SkipOperator("|")) {
      ASSIGN_OR_RETURN(value, ParseFilter(std::move(value)));
    } else if (tokens_.current().IsName("is")) {
      ASSIGN_OR_RETURN(value, ParseTest(std::move(value)));
    } else if (tokens_.current().IsOperator("(") && value != nullptr) {
      ASSIGN_OR_RETURN(value, ParseCallOf(std::move(value)));
    } else {
      return value;
    }
  }
}

ExpressionParser::Result ExpressionParser::ParseFilter(ExpressionPtr value) {
  const Position at = tokens_.current().at;
  ASSIGN_OR_RETURN(std::string name, tokens_.ExpectDottedName());
  Call call;
  if (tokens_.current().IsOperator("(")) {
    ASSIGN_OR_RETURN(call, ParseCall());
  }
  const FilterEntry* const filter = FindFilter(name);
  if (filter == nullptr && !surroundings_.in_branch()) {
    return Unimplemented("{}the filter '{}' is not supported", Describe(at), name);
  }
  ASSIGN_OR_RETURN(ExpressionPtr result, Make(Kind::kFilter, at, RowOf(std::move(value))));
  result->height = std::max(result->height, HeightOf(call) + 1);
  result->call = std::move(call);
  result->text = std::move(name);
  result->filter = filter;
  return result;
}

ExpressionParser::Result ExpressionParser::ParseTest(ExpressionPtr value) {
  const Position at = tokens_.Take().at;
  const bool negated = tokens_.SkipName("not");
  ASSIGN_OR_RETURN(std::string name, tokens_.ExpectDottedName());
  Call call;
  const Token& token = tokens_.current();
  const bool ends = token.IsName("else") || token.IsName("or") || token.IsName("and");
  if (token.IsOperator("(")) {
    ASSIGN_OR_RETURN(call, ParseCall());
  } else if (token.IsName("is")) {
    return SyntaxError(token.at, "tests cannot be chained with 'is'");
  } else if ((token.kind == Token::Kind::kName && !ends) || token.kind == Token::Kind::kString ||
             token.kind == Token::Kind::kNumber || token.IsOperator("[") || token.IsOperator("{")) {
    ASSIGN_OR_RETURN(ExpressionPtr argument, ParsePrimary());
    ASSIGN_OR_RETURN(argument, ParsePostfix(std::move(argument)));
    call.positional.push_back(std::move(argument));
  }
  const TestEntry* const test = FindTest(name);
  if (test == nullptr && !surroundings_.in_branch()) {
    return Unimplemented("{}the test '{}' is not supported", Describe(at), name);
  }
  ASSIGN_OR_RETURN(ExpressionPtr result, Make(Kind::kTest, at, RowOf(std::move(value))));
  result->height = std::max(result->height, HeightOf(call) + 1);
  result->call = std::move(call);
  result->text = std::move(name);
  result->test = test;
  if (!negated) return result;
  return Make(Kind::kNot, at, RowOf(std::move(result)));
}

}  // namespace tandem::jinja
