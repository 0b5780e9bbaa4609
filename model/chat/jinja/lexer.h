#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/chat/jinja/value.h"

namespace tandem::jinja {

// Where something is in a template, counted from 1. Columns count bytes.
struct Position {
  int line = 1;
  int column = 1;
};

struct Token {
  enum class Kind : uint8_t {
    kData,           // text outside of tags
    kBlockBegin,     // {%
    kBlockEnd,       // %}
    kVariableBegin,  // {{
    kVariableEnd,    // }}
    kName,
    kString,
    kNumber,
    kOperator,
    kEnd
  };
  Kind kind;
  std::string text;  // of data, names, strings (unescaped) and operators
  Value number;
  Position at;

  bool IsOperator(std::string_view wanted) const {
    return kind == Kind::kOperator && text == wanted;
  }
  bool IsName(std::string_view wanted) const { return kind == Kind::kName && text == wanted; }
};

inline constexpr size_t kMaxTemplateBytes = 512 << 10;

// Splits a template into tokens, of which the last is kEnd. White space is controlled as by
// trim_blocks and lstrip_blocks: a line break after a block and white space before one on its line
// are dropped. `source` is well-formed UTF-8. INVALID_ARGUMENT with line and column.
absl::StatusOr<std::vector<Token>> Tokenize(std::string_view source);

// The position as text for a message: "line 3, column 7: ".
std::string Describe(Position at);

}  // namespace tandem::jinja
