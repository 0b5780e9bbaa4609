#include "model/chat/jinja/parser.h"

namespace tandem::jinja {

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

absl::StatusOr<std::string> TokenStream::ExpectDottedName() {
  ASSIGN_OR_RETURN(Token token, ExpectName());
  while (SkipOperator(".")) {
    ASSIGN_OR_RETURN(const Token part, ExpectName());
    token.text += "." + part.text;
  }
  return token.text;
}

}  // namespace tandem::jinja
