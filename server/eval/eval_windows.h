#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "absl/status/statusor.h"
#include "model/tokenizer/tokenizer.h"
#include "server/eval/eval_texts.h"

namespace tandem {

struct WindowPlan {
  int32_t prompt_tokens = 1024;  // with what the tokenizer puts before every text
  int32_t output_tokens = 255;   // 0 where the outputs are not parts of the texts
  int32_t count = 8;
};

// A part of a text: a prompt, and the tokens behind it, which are to be the output.
struct EvalWindow {
  std::string name;  // of its text, and which of the text's windows it is, from 1
  std::vector<int32_t> prompt;
  std::vector<int32_t> output;
  int64_t answer_tokens = 0;  // the last ones of the output, which follow from a fact in the prompt
};

using TokenizeText =
    std::function<absl::StatusOr<std::vector<int32_t>>(std::string_view, Template)>;

// Windows that do not overlap: the first one of each text, then the second ones, and so on, until there
// are plan.count or no text has another one. Each begins with what the tokenizer puts before a text,
// such as BOS, because models are at a loss without it. Texts are tokenized in pieces, no further than
// they are needed. INVALID_ARGUMENT when no text is long enough for a window.
absl::StatusOr<std::vector<EvalWindow>> MakeWindows(const std::vector<EvalText>& texts,
                                                    const WindowPlan& plan,
                                                    const TokenizeText& tokenize);

}  // namespace tandem
