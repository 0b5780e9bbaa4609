#include "router/request/choice_text.h"

#include <algorithm>
#include <utility>

namespace tandem {

ChoiceText::ChoiceText(const Tokenizer* tokenizer, TextEnds ends)
    : ends_(std::move(ends)), tokenizer_(tokenizer), matcher_(ends_.stop_strings) {
  if (tokenizer != nullptr) detokenizer_.emplace(*tokenizer, SkipSpecial::kNo);
}

bool ChoiceText::IsHidden(int32_t id) const {
  if (ends_.special_text == RequestSpec::Text::kIncluded || !tokenizer_->IsSpecial(id)) {
    return false;
  }
  const std::vector<int32_t>& shown = ends_.shown_special_ids;
  return !std::binary_search(shown.begin(), shown.end(), id);
}

std::string ChoiceText::Push(int32_t id) {
  const std::vector<int32_t>& stops = ends_.stop_token_ids;
  if (std::binary_search(stops.begin(), stops.end(), id)) {
    stopped_by_token_ = true;
    if (ends_.stop_text == RequestSpec::Text::kLeftOut) return "";
  }
  if (!detokenizer_) return "";
  const std::string piece = IsHidden(id) ? "" : detokenizer_->Push(id);
  if (++num_tokens_ <= ends_.min_tokens) return matcher_.Pass(piece);
  return Take(matcher_.Push(piece));
}

std::string ChoiceText::Flush() {
  if (!detokenizer_ || !matched_stop_.empty()) return "";
  const std::string piece = detokenizer_->Flush();
  std::string text =
      num_tokens_ <= ends_.min_tokens ? matcher_.Pass(piece) : Take(matcher_.Push(piece));
  return matched_stop_.empty() ? text + matcher_.Flush() : text;
}

std::string ChoiceText::Take(StopStringMatcher::Result result) {
  if (!result.matched) return std::move(result.text);
  matched_stop_ = std::move(result.stop);
  if (ends_.stop_text == RequestSpec::Text::kIncluded) result.text += matched_stop_;
  return std::move(result.text);
}

}  // namespace tandem
