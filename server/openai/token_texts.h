#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "model/tokenizer/tokenizer.h"

namespace tandem::openai {

// The texts of single tokens, for log-probabilities. Immutable and thread-safe; the tokenizer must
// outlive it.
class TokenTexts {
 public:
  // `tokenizer`: null where the model has none; tokens are then named by their ids.
  explicit TokenTexts(const Tokenizer* tokenizer);

  struct Text {
    std::string text;   // what OpenAI calls "token": well-formed UTF-8
    std::string bytes;  // what the token adds to the text, perhaps part of a character
  };
  Text Of(int32_t id) const;
  // "token_id:123", as vLLM's return_tokens_as_token_ids has it.
  static std::string IdName(int32_t id);

  const Tokenizer* tokenizer() const { return tokenizer_; }

 private:
  const Tokenizer* const tokenizer_;
  // An ordinary token that is decoded before the token in question, because some decoders drop the
  // space at the beginning of a text.
  std::optional<int32_t> before_;
};

// The number of characters of well-formed UTF-8.
size_t CountCharacters(std::string_view text);

}  // namespace tandem::openai
