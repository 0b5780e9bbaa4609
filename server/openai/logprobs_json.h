#pragma once

#include "server/openai/json_body.h"
#include "server/openai/piece.h"
#include "server/openai/token_texts.h"

namespace tandem::openai {

enum class TokenNames : bool { kTexts, kIds };

// Log-probabilities below this are written as this: JSON has no infinity.
inline constexpr float kLeastLogprob = -9999.0F;

// The field "logprobs" of a completion: four lists of the same length. With `echo` the tokens of
// the prompt come first, and the very first one has no log-probability.
Json CompletionLogprobs(const Piece& piece, bool echo, const TokenTexts& texts, TokenNames names);
// The field "logprobs" of a chat completion.
Json ChatLogprobs(const Piece& piece, const TokenTexts& texts, TokenNames names);
// vLLM's field "prompt_logprobs": a list with null for the first token and, for each further token,
// an object whose names are token ids.
Json PromptLogprobs(const PromptInfo& prompt, const TokenTexts& texts);

// The double that prints with as few digits as the float `value`, so that JSON shows no digits
// beyond a float's precision.
double ShortestDouble(float value);

}  // namespace tandem::openai
