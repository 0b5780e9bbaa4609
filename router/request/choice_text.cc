#include "router/request/choice_text.h"

#include <algorithm>
#include <utility>

namespace tandem {

ChoiceText::ChoiceText(const Tokenizer* tokenizer, std::vector<std::string> stop_strings,
                       std::vector<int32_t> stop_token_ids)
    : matcher_(std::move(stop_strings)), stop_token_ids_(std::move(stop_token_ids)) {
  if (tokenizer != nullptr) detokenizer_.emplace(*tokenizer);
}

std::string ChoiceText::Push(int32_t id) {
  if (std::binary_search(stop_token_ids_.begin(), stop_token_ids_.end(), id)) {
    stopped_by_token_ = true;
    return "";
  }
  if (!detokenizer_) return "";
  StopStringMatcher::Result result = matcher_.Push(detokenizer_->Push(id));
  if (result.matched) matched_stop_ = std::move(result.stop);
  return std::move(result.text);
}

std::string ChoiceText::Flush() {
  if (!detokenizer_ || !matched_stop_.empty()) return "";
  StopStringMatcher::Result last = matcher_.Push(detokenizer_->Flush());
  if (last.matched) {
    matched_stop_ = std::move(last.stop);
    return std::move(last.text);
  }
  return last.text + matcher_.Flush();
}

}  // namespace tandem
