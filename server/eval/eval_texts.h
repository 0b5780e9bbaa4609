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

// Reads the texts of a file. In a file whose name ends in .jsonl each line holds one text; any
// other file is one text. NOT_FOUND or INVALID_ARGUMENT names the file; no error repeats the text.
absl::StatusOr<std::vector<EvalText>> ReadEvalTexts(const std::string& path);

// Reads lines that are JSON objects with "text" and, where a text has a name of its own, "name".
// INVALID_ARGUMENT names `file` and the number of the line.
absl::StatusOr<std::vector<EvalText>> ParseEvalLines(std::string_view lines,
                                                     const std::string& file);

}  // namespace tandem
