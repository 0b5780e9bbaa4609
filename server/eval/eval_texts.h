#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem {

// A text that windows of tokens are taken from.
struct EvalText {
  std::string name;
  std::string text;  // UTF-8
};

// The texts of a file: of one whose name ends in .jsonl one of each line, of another one all that it
// holds. NOT_FOUND or INVALID_ARGUMENT names the file. No message repeats its text.
absl::StatusOr<std::vector<EvalText>> ReadEvalTexts(const std::string& path);

// Reads lines that are JSON objects with "text" and, where a text has a name of its own, "name".
// INVALID_ARGUMENT names `file` and the number of the line.
absl::StatusOr<std::vector<EvalText>> ParseEvalLines(std::string_view lines,
                                                     const std::string& file);

}  // namespace tandem
