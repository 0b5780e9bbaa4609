#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer/tokenizer.h"

namespace tandem {

// Turns one stream of token ids into text, piece by piece, and never emits part of a UTF-8
// character: bytes that may still become one are held back. The concatenated pieces equal
// Tokenizer::Decode of all ids with the same SkipSpecial. Thread: one at a time. The tokenizer must
// outlive it.
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer, SkipSpecial skip = SkipSpecial::kYes);

  // Returns the text that is final after `id`; may be empty.
  std::string Push(int32_t id);
  // Returns the text that was held back, at the end of the stream. Incomplete characters become
  // U+FFFD.
  std::string Flush();

 private:
  std::unique_ptr<TextStream> stream_;
};

// Finds the stop string that is completed first in a text that arrives in pieces; of two that end
// at the same character, the longer one. The result does not depend on how the text is cut into
// pieces. Text that may be the beginning of a stop string is held back, so no part of one is ever
// streamed. Empty stop strings are ignored. Thread: one at a time.
class StopStringMatcher {
 public:
  explicit StopStringMatcher(std::vector<std::string> stop_strings);

  struct Result {
    std::string text;      // may be emitted; ends before the stop string if one matched
    bool matched = false;  // further pieces are ignored after a match
    std::string stop;      // the stop string that matched
  };
  Result Push(std::string_view piece);
  // As Push, for a piece that may begin a stop string, but in which none is looked for: a stop
  // string that ends with a later piece still matches.
  std::string Pass(std::string_view piece);
  // Returns the text that was held back, at the end of the stream.
  std::string Flush();

 private:
  std::string TakeSettled();

  const std::vector<std::string> stop_strings_;
  std::string held_;  // may be the beginning of a stop string
  bool matched_ = false;
};

}  // namespace tandem
