#pragma once

#include <memory>

#include "model/tokenizer/decode_step.h"

namespace tandem {

// Tokens written in ByteLevelCharacters become bytes, and bytes become text when their characters
// are complete. A token with another character stands for itself.
std::unique_ptr<DecodeStep> MakeByteLevelStep();

// Emits a run of <0xNN> tokens as text when the run ends. One ill-formed byte anywhere in the run
// turns every byte of it into U+FFFD, so nothing of it is final earlier.
std::unique_ptr<DecodeStep> MakeByteFallbackStep();

}  // namespace tandem
