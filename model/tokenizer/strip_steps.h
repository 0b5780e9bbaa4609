#pragma once

#include <cstdint>
#include <memory>
#include <string>

#include "model/tokenizer/decode_step.h"

namespace tandem {

struct StripLimits {
  std::string content;  // one character
  int32_t start;        // maximum number of characters to strip at the start
  int32_t stop;         // maximum number of characters to strip at the end
};

// Strips a character from the start and the end of each token.
std::unique_ptr<DecodeStep> MakeStripTokenStep(StripLimits limits);

// Strips a character from the start and the end of the text that all tokens form together. Text
// that may be its end is held back.
std::unique_ptr<DecodeStep> MakeStripTextStep(StripLimits limits);

}  // namespace tandem
