#pragma once

#include "server/openai/json_body.h"
#include "server/openai/piece.h"
#include "server/openai/token_texts.h"

namespace tandem::openai {

enum class TokenNames : bool { kTexts, kIds };

// Log-probabilities below this are written as this: JSON has no infinity.
inline constexpr float kLeastLogprob = -9999.0F;

// As "logprobs" of a completion: four lists of the same length. With `echo` the prompt's tokens come
// first; the first one of all has no log-probability.
Json CompletionLogprobs(const Piece& piece, bool echo, const TokenTexts& texts, TokenNames names);
// As "logprobs" of a chat completion.
Json ChatLogprobs(const Piece& piece, const TokenTexts& texts, TokenNames names);
// As vLLM's "prompt_logprobs": null for the first token, then an object by token id for each.
Json PromptLogprobs(const PromptInfo& prompt, const TokenTexts& texts);

// The shortest decimal number that is this float.
double ShortestDouble(float value);

}  // namespace tandem::openai
