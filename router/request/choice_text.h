#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/tokenizer/detokenizer.h"
#include "model/tokenizer/tokenizer.h"
#include "router/request/request_spec.h"

namespace tandem {

// What ends the text of a choice, and which special texts are shown.
struct TextEnds {
  std::vector<std::string> stop_strings = {};
  std::vector<int32_t> stop_token_ids = {};  // sorted
  // A stop string that is complete within the first min_tokens tokens does not end the choice. The
  // workers see to it that stop tokens do not do so either.
  int32_t min_tokens = 0;
  RequestSpec::Text stop_text = RequestSpec::Text::kLeftOut;
  RequestSpec::Text special_text = RequestSpec::Text::kLeftOut;
  std::vector<int32_t> shown_special_ids = {};  // sorted; part of the text in any case
};

// The text of one choice while its tokens arrive: whole characters and, unless they are included,
// nothing of a stop string, of the stop token that ended it and of special tokens. Without a
// tokenizer there is no text.
// Thread: one at a time. The tokenizer must outlive it.
class ChoiceText {
 public:
  ChoiceText(const Tokenizer* tokenizer, TextEnds ends);

  // Takes the next token, `id`, and returns the text that became certain with it. After ended() no
  // token may follow.
  std::string Push(int32_t id);
  // The text that was held back; called once the choice has ended.
  std::string Flush();

  // Whether a stop token or a stop string has come.
  bool ended() const { return stopped_by_token_ || !matched_stop_.empty(); }
  // The stop string that matched, or empty.
  const std::string& matched_stop() const { return matched_stop_; }

 private:
  // Whether the token is special and left out of the text.
  bool IsHidden(int32_t id) const;
  // The text of a matcher's result, with the stop string if that is included; remembers the stop
  // string that matched.
  std::string Take(StopStringMatcher::Result result);

  const TextEnds ends_;
  const Tokenizer* const tokenizer_;
  std::optional<Detokenizer> detokenizer_;
  StopStringMatcher matcher_;
  int32_t num_tokens_ = 0;
  bool stopped_by_token_ = false;
  std::string matched_stop_;
};

}  // namespace tandem
