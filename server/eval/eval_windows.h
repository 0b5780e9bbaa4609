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
  int64_t answer_tokens = 0;  // the output's last tokens, which follow from a planted fact
};

using TokenizeText =
    std::function<absl::StatusOr<std::vector<int32_t>>(std::string_view, Template)>;

// Cuts texts into windows that do not overlap: the first window of each text, then the second ones,
// and so on, until there are plan.count windows or all texts are used up. Each begins with the
// tokens that the tokenizer puts before a text, such as BOS, because models predict badly without
// them. Texts are tokenized in pieces, and only as far as they are needed. INVALID_ARGUMENT when no
// text is long enough for a window.
absl::StatusOr<std::vector<EvalWindow>> MakeWindows(const std::vector<EvalText>& texts,
                                                    const WindowPlan& plan,
                                                    const TokenizeText& tokenize);

}  // namespace tandem
