// The smallest expressions: names, numbers, strings, and what stands in parentheses, brackets or
// braces.
#include "model/chat/jinja/make_expression.h"
#include "model/chat/jinja/parser.h"

namespace tandem::jinja {

ExpressionParser::Result ExpressionParser::ParseNamed() {
  const Token token = tokens_.Take();
  const std::string& name = token.text;
  const bool truth = name == "true" || name == "True";
  const bool constant = truth || name == "false" || name == "False";
  const bool none = name == "none" || name == "None";
  ASSIGN_OR_RETURN(
      ExpressionPtr value,
      MakeExpression(constant || none ? Kind::kConstant : Kind::kVariable, token.at, {}));
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
    ASSIGN_OR_RETURN(ExpressionPtr value, MakeExpression(Kind::kConstant, token.at, {}));
    value->constant = tokens_.Take().number;
    return value;
  }
  if (token.kind == Token::Kind::kString) {
    ASSIGN_OR_RETURN(ExpressionPtr value, MakeExpression(Kind::kConstant, token.at, {}));
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
  if (tokens_.SkipOperator(")")) return MakeExpression(Kind::kTuple, at, {});
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
  if (is_tuple) return MakeExpression(Kind::kTuple, at, std::move(items));
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
  return MakeExpression(dict ? Kind::kDict : Kind::kList, at, std::move(items));
}

}  // namespace tandem::jinja
