#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "model/tokenizer/tokenizer.h"

namespace tandem {

// Turns one stream of token ids into text, piece by piece, and never emits a part of a UTF-8
// character: bytes that could still become one are held back. The pieces put together equal
// Tokenizer::Decode of all ids with SkipSpecial::kYes.
// Thread: one at a time. The tokenizer must outlive it.
class Detokenizer {
 public:
  explicit Detokenizer(const Tokenizer& tokenizer);

  // The text that became certain with `id`; may be empty.
  std::string Push(int32_t id);
  // What was held back, at the end of the stream; incomplete characters become U+FFFD.
  std::string Flush();

 private:
  std::unique_ptr<TextStream> stream_;
};

// Finds the stop string that is complete first in text that arrives piece by piece (of two that end
// together, the longer one), so that the result does not depend on the pieces. Holds back what
// could be the beginning of one: no part of a stop string is ever streamed. Empty stop strings are
// ignored. Thread: one at a time.
class StopStringMatcher {
 public:
  explicit StopStringMatcher(std::vector<std::string> stop_strings);

  struct Result {
    std::string text;      // may be emitted now: ends before the stop string when one matched
    bool matched = false;  // after that nothing more is taken
    std::string stop;      // which one
  };
  Result Push(std::string_view piece);
  // What was held back, at the end of the stream.
  std::string Flush();

 private:
  const std::vector<std::string> stop_strings_;
  std::string held_;  // the beginning of some stop string, or empty
  bool matched_ = false;
};

}  // namespace tandem
