#pragma once

#include <string>

namespace tandem {

// A part of a text that is tokenized as one, with who wrote it. Control tokens such as <|im_end|>
// are recognized only in what the model's own template wrote, so that a user's text is never more
// than text.
struct TextPart {
  std::string text;
  bool from_input = false;  // came from a request: messages, tools, documents

  bool operator==(const TextPart&) const = default;
};

}  // namespace tandem
