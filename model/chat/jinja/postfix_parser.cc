// What follows a value: attributes, subscripts, calls, filters and tests.
#include <algorithm>

#include "model/chat/jinja/make_expression.h"
#include "model/chat/jinja/parser.h"
#include "model/chat/jinja/registry.h"

namespace tandem::jinja {
namespace {

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

}  // namespace

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
    ASSIGN_OR_RETURN(ExpressionPtr attribute,
                     MakeExpression(Kind::kAttribute, at, RowOf(std::move(value))));
    attribute->text = tokens_.Take().text;
    return attribute;
  }
  if (tokens_.current().kind != Token::Kind::kNumber || tokens_.current().number.real()) {
    return tokens_.Unexpected("a name or a number");
  }
  ASSIGN_OR_RETURN(ExpressionPtr index, MakeExpression(Kind::kConstant, at, {}));
  index->constant = tokens_.Take().number;
  return MakeExpression(Kind::kItem, at, RowOf(std::move(value), std::move(index)));
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
    return MakeExpression(
        Kind::kSlice, at,
        RowOf(std::move(value), std::move(parts[0]), std::move(parts[1]), std::move(parts[2])));
  }
  if (parts[0] == nullptr) return SyntaxError(at, "expected an expression in the brackets");
  return MakeExpression(Kind::kItem, at, RowOf(std::move(value), std::move(parts[0])));
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
  ASSIGN_OR_RETURN(ExpressionPtr result, MakeExpression(Kind::kCall, at, RowOf(std::move(value))));
  result->height = std::max(result->height, HeightOf(call) + 1);
  result->call = std::move(call);
  return result;
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
  ASSIGN_OR_RETURN(ExpressionPtr result,
                   MakeExpression(Kind::kFilter, at, RowOf(std::move(value))));
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
  ASSIGN_OR_RETURN(ExpressionPtr result, MakeExpression(Kind::kTest, at, RowOf(std::move(value))));
  result->height = std::max(result->height, HeightOf(call) + 1);
  result->call = std::move(call);
  result->text = std::move(name);
  result->test = test;
  if (!negated) return result;
  return MakeExpression(Kind::kNot, at, RowOf(std::move(result)));
}

}  // namespace tandem::jinja
