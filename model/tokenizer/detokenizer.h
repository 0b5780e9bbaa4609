#pragma once

#include <cstdint>
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
  // What was held back; incomplete characters become U+FFFD. Afterwards nothing is held.
  std::string Flush();

 private:
  const Tokenizer& tokenizer_;
  std::string held_;
  bool at_start_ = true;
};

// Finds the earliest stop string in text that arrives piece by piece, and holds back what could be
// the beginning of one, so that no part of a stop string is ever streamed.
// Thread: one at a time.
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
  std::string held_;
};

}  // namespace tandem
