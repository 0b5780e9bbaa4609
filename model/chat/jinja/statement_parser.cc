#include <algorithm>

#include "model/chat/jinja/parser.h"

namespace tandem::jinja {
namespace {

constexpr int kMaxBlocks = 60;

constexpr std::string_view kUnsupportedTags[] = {"include", "import",     "from",  "extends",
                                                 "block",   "autoescape", "trans", "debug"};

bool IsReserved(std::string_view name) {
  return name == "true" || name == "false" || name == "none" || name == "True" || name == "False" ||
         name == "None";
}

// Reads the statements of a template.
class StatementParser {
 public:
  StatementParser(std::vector<Token> tokens, Program& program)
      : tokens_(std::move(tokens)),
        program_(program),
        surroundings_(program),
        expressions_(tokens_, surroundings_) {}

  absl::Status Run() {
    program_.loop = program_.symbols.Number("loop");
    program_.caller = program_.symbols.Number("caller");
    program_.varargs = program_.symbols.Number("varargs");
    program_.kwargs = program_.symbols.Number("kwargs");
    ASSIGN_OR_RETURN(program_.body, ParseBody({}));
    return absl::OkStatus();
  }

 private:
  using Kind = Statement::Kind;
  using Parser = absl::StatusOr<Statement> (StatementParser::*)(Position);

  // Reads until a block whose tag is one of `ends`, which becomes the current token; without any,
  // until the end of the template.
  absl::StatusOr<Body> ParseBody(std::initializer_list<std::string_view> ends) {
    Body body;
    if (++depth_ > kMaxBlocks) {
      return SyntaxError(tokens_.current().at, "blocks are nested more than {} deep", kMaxBlocks);
    }
    while (true) {
      const Token& token = tokens_.current();
      if (token.kind == Token::Kind::kEnd) {
        --depth_;
        if (ends.size() == 0) return body;
        return SyntaxError(token.at, "the template ends before '{}'", *(ends.end() - 1));
      }
      Statement statement;
      statement.at = token.at;
      if (token.kind == Token::Kind::kData) {
        statement.kind = Kind::kData;
        statement.data = Text(tokens_.Take().text);
      } else if (token.kind == Token::Kind::kVariableBegin) {
        tokens_.Take();
        statement.kind = Kind::kPrint;
        ASSIGN_OR_RETURN(statement.value, expressions_.ParseTuple());
        RETURN_IF_ERROR(tokens_.Expect(Token::Kind::kVariableEnd, "'}}'"));
      } else {
        tokens_.Take();
        const Token& tag = tokens_.current();
        if (tag.kind == Token::Kind::kName &&
            std::find(ends.begin(), ends.end(), tag.text) != ends.end()) {
          --depth_;
          return body;
        }
        ASSIGN_OR_RETURN(statement, ParseStatement());
        RETURN_IF_ERROR(tokens_.Expect(Token::Kind::kBlockEnd, "'%}'"));
      }
      body.push_back(std::move(statement));
    }
  }

  // Reads the body of a block up to the tag `end`, which is taken as well.
  absl::StatusOr<Body> ParseWhole(std::string_view end) {
    RETURN_IF_ERROR(tokens_.Expect(Token::Kind::kBlockEnd, "'%}'"));
    ASSIGN_OR_RETURN(Body body, ParseBody({end}));
    tokens_.Take();
    return body;
  }

  absl::StatusOr<Statement> ParseStatement() {
    constexpr std::pair<std::string_view, Parser> kParsers[] = {
        {"if", &StatementParser::ParseIf},
        {"for", &StatementParser::ParseFor},
        {"set", &StatementParser::ParseSet},
        {"macro", &StatementParser::ParseMacro},
        {"call", &StatementParser::ParseCallBlock},
        {"filter", &StatementParser::ParseFilterBlock},
        {"with", &StatementParser::ParseWith},
        {"generation", &StatementParser::ParseGeneration},
        {"break", &StatementParser::ParseBreak},
        {"continue", &StatementParser::ParseBreak},
        {"print", &StatementParser::ParsePrint},
    };
    ASSIGN_OR_RETURN(const Token tag, tokens_.ExpectName());
    for (const auto& [name, parser] : kParsers) {
      if (tag.text != name) continue;
      tag_ = tag.text;
      absl::StatusOr<Statement> statement = (this->*parser)(tag.at);
      if (statement.ok()) statement->at = tag.at;
      return statement;
    }
    for (const std::string_view name : kUnsupportedTags) {
      if (tag.text != name) continue;
      return Unimplemented("{}the tag '{}' is not supported", Describe(tag.at), name);
    }
    return SyntaxError(tag.at, "there is no tag '{}' here", tag.text);
  }

  absl::StatusOr<Statement> ParseIf(Position) {
    Statement statement;
    statement.kind = Kind::kIf;
    surroundings_.EnterBranch();
    std::string tag = "if";
    while (tag != "endif") {
      Branch branch;
      if (tag != "else") {
        ASSIGN_OR_RETURN(branch.condition,
                         expressions_.ParseTuple(ExpressionParser::Conditional::kExcluded));
      }
      RETURN_IF_ERROR(tokens_.Expect(Token::Kind::kBlockEnd, "'%}'"));
      if (tag == "else") {
        ASSIGN_OR_RETURN(branch.body, ParseBody({"endif"}));
      } else {
        ASSIGN_OR_RETURN(branch.body, ParseBody({"elif", "else", "endif"}));
      }
      tag = tokens_.Take().text;
      statement.branches.push_back(std::move(branch));
    }
    surroundings_.LeaveBranch();
    return statement;
  }

  // Parses one target: a name, a target in parentheses or, with `with_attribute`,
  // namespace.attribute.
  absl::StatusOr<Target> ParseOneTarget(bool with_attribute) {
    Target target;
    target.at = tokens_.current().at;
    if (tokens_.SkipOperator("(")) {
      ASSIGN_OR_RETURN(target, ParseTarget(with_attribute, ""));
      RETURN_IF_ERROR(tokens_.ExpectOperator(")"));
      return target;
    }
    ASSIGN_OR_RETURN(const Token name, tokens_.ExpectName());
    if (IsReserved(name.text)) {
      return SyntaxError(name.at, "'{}' cannot be assigned to", name.text);
    }
    if (with_attribute && tokens_.SkipOperator(".")) {
      ASSIGN_OR_RETURN(const Token attribute, tokens_.ExpectName());
      target.attribute = attribute.text;
      target.variable = surroundings_.Load(name.text);
      return target;
    }
    target.variable = program_.symbols.Number(name.text);
    return target;
  }

  absl::StatusOr<Target> ParseTarget(bool with_attribute, std::string_view end) {
    const auto at_end = [&] {
      const Token& token = tokens_.current();
      return token.IsOperator(")") || token.IsOperator("=") ||
             token.kind == Token::Kind::kBlockEnd || (!end.empty() && token.IsName(end));
    };
    if (++depth_ > kMaxBlocks) return SyntaxError(tokens_.current().at, "nested too deeply");
    Target row;
    row.at = tokens_.current().at;
    do {
      if (!row.row.empty() && at_end()) {
        row.is_row = true;
        break;
      }
      ASSIGN_OR_RETURN(Target target, ParseOneTarget(with_attribute));
      row.row.push_back(std::move(target));
    } while (tokens_.SkipOperator(","));
    --depth_;
    if (row.row.size() > 1) row.is_row = true;
    if (row.is_row) return row;
    Target only = std::move(row.row[0]);
    return only;
  }

  absl::StatusOr<Statement> ParseFor(Position at) {
    Statement statement;
    statement.kind = Kind::kFor;
    ASSIGN_OR_RETURN(statement.target, ParseTarget(false, "in"));
    if (!tokens_.SkipName("in")) return tokens_.Unexpected("'in'");
    ASSIGN_OR_RETURN(statement.value, expressions_.ParseTuple(
                                          ExpressionParser::Conditional::kExcluded, "recursive"));
    if (tokens_.SkipName("if")) {
      ASSIGN_OR_RETURN(statement.filter, expressions_.Parse());
    }
    if (tokens_.current().IsName("recursive")) {
      return Unimplemented("{}recursive loops are not supported", Describe(at));
    }
    RETURN_IF_ERROR(tokens_.Expect(Token::Kind::kBlockEnd, "'%}'"));
    ++loops_;
    ASSIGN_OR_RETURN(statement.body, ParseBody({"else", "endfor"}));
    --loops_;
    if (tokens_.Take().text == "endfor") return statement;
    ASSIGN_OR_RETURN(statement.otherwise, ParseWhole("endfor"));
    return statement;
  }

  absl::StatusOr<Statement> ParseBreak(Position at) {
    const bool is_break = tag_ == "break";
    if (loops_ == 0) return SyntaxError(at, "'{}' outside of a loop", tag_);
    Statement statement;
    statement.kind = is_break ? Kind::kBreak : Kind::kContinue;
    return statement;
  }

  absl::StatusOr<Statement> ParseSet(Position) {
    Statement statement;
    ASSIGN_OR_RETURN(statement.target, ParseTarget(true, ""));
    if (tokens_.SkipOperator("=")) {
      statement.kind = Kind::kSet;
      ASSIGN_OR_RETURN(statement.value, expressions_.ParseTuple());
      return statement;
    }
    statement.kind = Kind::kSetBlock;
    while (tokens_.SkipOperator("|")) {
      ASSIGN_OR_RETURN(statement.value, expressions_.ParseFilter(std::move(statement.value)));
    }
    ASSIGN_OR_RETURN(statement.body, ParseOutsideOfLoops("endset"));
    return statement;
  }

  // Reads a body that renders into a text of its own: break and continue in it cannot leave a loop
  // around it.
  absl::StatusOr<Body> ParseOutsideOfLoops(std::string_view end) {
    const int loops = std::exchange(loops_, 0);
    absl::StatusOr<Body> body = ParseWhole(end);
    loops_ = loops;
    return body;
  }

  absl::Status ParseSignature(Macro& macro) {
    RETURN_IF_ERROR(tokens_.ExpectOperator("("));
    bool first = true;
    while (!tokens_.current().IsOperator(")")) {
      if (!std::exchange(first, false)) RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      ASSIGN_OR_RETURN(const Token name, tokens_.ExpectName());
      if (IsReserved(name.text)) {
        return SyntaxError(name.at, "'{}' cannot be a parameter", name.text);
      }
      macro.parameters.push_back(program_.symbols.Number(name.text));
      macro.parameter_names.push_back(name.text);
      if (tokens_.SkipOperator("=")) {
        ASSIGN_OR_RETURN(ExpressionPtr value, expressions_.Parse());
        macro.defaults.push_back(std::move(value));
      } else if (!macro.defaults.empty()) {
        return SyntaxError(name.at, "'{}' needs a default, as the parameter before it has one",
                           name.text);
      }
    }
    return tokens_.ExpectOperator(")");
  }

  absl::Status ParseMacroBody(Macro& macro, std::string_view end) {
    surroundings_.EnterMacro(&macro);
    absl::StatusOr<Body> body = ParseOutsideOfLoops(end);
    surroundings_.LeaveMacro();
    RETURN_IF_ERROR(body.status());
    macro.body = *std::move(body);
    for (const std::string& name : macro.parameter_names) {
      if (name == "caller") macro.wants_caller = false;
      if (name == "varargs") macro.wants_args = false;
      if (name == "kwargs") macro.wants_named = false;
    }
    return absl::OkStatus();
  }

  absl::StatusOr<Statement> ParseMacro(Position) {
    Statement statement;
    statement.kind = Kind::kMacro;
    statement.macro = std::make_unique<Macro>();
    ASSIGN_OR_RETURN(const Token name, tokens_.ExpectName());
    if (IsReserved(name.text)) return SyntaxError(name.at, "'{}' cannot be a macro", name.text);
    statement.macro->name = name.text;
    statement.variable = program_.symbols.Number(name.text);
    RETURN_IF_ERROR(ParseSignature(*statement.macro));
    RETURN_IF_ERROR(ParseMacroBody(*statement.macro, "endmacro"));
    return statement;
  }

  absl::StatusOr<Statement> ParseCallBlock(Position at) {
    Statement statement;
    statement.kind = Kind::kCall;
    statement.macro = std::make_unique<Macro>();
    statement.macro->name = "caller";
    if (tokens_.current().IsOperator("(")) RETURN_IF_ERROR(ParseSignature(*statement.macro));
    ASSIGN_OR_RETURN(statement.value, expressions_.Parse());
    if (statement.value->kind != Expression::Kind::kCall) return SyntaxError(at, "expected a call");
    RETURN_IF_ERROR(ParseMacroBody(*statement.macro, "endcall"));
    return statement;
  }

  absl::StatusOr<Statement> ParseFilterBlock(Position) {
    Statement statement;
    statement.kind = Kind::kFilterBlock;
    ASSIGN_OR_RETURN(statement.value, expressions_.ParseFilter(nullptr));
    while (tokens_.SkipOperator("|")) {
      ASSIGN_OR_RETURN(statement.value, expressions_.ParseFilter(std::move(statement.value)));
    }
    ASSIGN_OR_RETURN(statement.body, ParseOutsideOfLoops("endfilter"));
    return statement;
  }

  absl::StatusOr<Statement> ParseWith(Position) {
    Statement statement;
    statement.kind = Kind::kWith;
    while (tokens_.current().kind != Token::Kind::kBlockEnd) {
      if (!statement.targets.empty()) RETURN_IF_ERROR(tokens_.ExpectOperator(","));
      ASSIGN_OR_RETURN(Target target, ParseOneTarget(false));
      statement.targets.push_back(std::move(target));
      RETURN_IF_ERROR(tokens_.ExpectOperator("="));
      ASSIGN_OR_RETURN(ExpressionPtr value, expressions_.Parse());
      statement.values.push_back(std::move(value));
    }
    ASSIGN_OR_RETURN(statement.body, ParseWhole("endwith"));
    return statement;
  }

  // transformers marks the text that a model learns to write; here it only is a scope.
  absl::StatusOr<Statement> ParseGeneration(Position) {
    Statement statement;
    statement.kind = Kind::kFilterBlock;
    ASSIGN_OR_RETURN(statement.body, ParseOutsideOfLoops("endgeneration"));
    return statement;
  }

  absl::StatusOr<Statement> ParsePrint(Position) {
    Statement statement;
    statement.kind = Kind::kPrint;
    ASSIGN_OR_RETURN(statement.value, expressions_.ParseTuple());
    return statement;
  }

  TokenStream tokens_;
  Program& program_;
  Surroundings surroundings_;
  ExpressionParser expressions_;
  std::string tag_;
  int depth_ = 0;
  int loops_ = 0;
};

}  // namespace

absl::StatusOr<std::unique_ptr<const Program>> Parse(std::string_view source) {
  ASSIGN_OR_RETURN(std::vector<Token> tokens, Tokenize(source));
  auto program = std::make_unique<Program>();
  RETURN_IF_ERROR(StatementParser(std::move(tokens), *program).Run());
  return std::unique_ptr<const Program>(std::move(program));
}

}  // namespace tandem::jinja
