#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "model/tokenizer/detokenizer.h"
#include "model/tokenizer/tokenizer.h"

namespace tandem {

// The text of one choice while its tokens arrive: whole characters, nothing of a stop string and
// nothing of the stop token that ended it. Without a tokenizer there is no text.
// Thread: one at a time. The tokenizer must outlive it.
class ChoiceText {
 public:
  // stop_token_ids: sorted.
  ChoiceText(const Tokenizer* tokenizer, std::vector<std::string> stop_strings,
             std::vector<int32_t> stop_token_ids);

  // The text that became certain with `id`. After ended() no token may follow.
  std::string Push(int32_t id);
  // The text that was held back; called once the choice has ended.
  std::string Flush();

  // Whether a stop token or a stop string has come.
  bool ended() const { return stopped_by_token_ || !matched_stop_.empty(); }
  // The stop string that matched, or empty.
  const std::string& matched_stop() const { return matched_stop_; }

 private:
  std::optional<Detokenizer> detokenizer_;
  StopStringMatcher matcher_;
  const std::vector<int32_t> stop_token_ids_;
  bool stopped_by_token_ = false;
  std::string matched_stop_;
};

}  // namespace tandem
