#include "server/openai/answer_reading.h"

#include <algorithm>
#include <utility>

#include "fmt/format.h"

namespace tandem::openai {
namespace {

// How many tokens of a prompt's end are searched for a mark that begins reasoning, which is no
// longer than this.
constexpr int kMaxMarkTokens = 32;

std::vector<int32_t> SpecialIn(const AnswerMarkup& markup, const Tokenizer* tokenizer) {
  std::vector<int32_t> special;
  if (tokenizer == nullptr) return special;
  for (const std::string& mark : markup.Marks()) {
    const auto ids = tokenizer->Encode(mark, {.add_template = Template::kOmit});
    if (!ids.ok()) continue;
    std::copy_if(ids->begin(), ids->end(), std::back_inserter(special),
                 [&](int32_t id) { return tokenizer->IsSpecial(id); });
  }
  std::sort(special.begin(), special.end());
  special.erase(std::unique(special.begin(), special.end()), special.end());
  return special;
}

std::string EndOf(const v1::TokenIds& prompt, const Tokenizer* tokenizer) {
  if (tokenizer == nullptr) return "";
  const auto& ids = prompt.ids();
  const auto begin = ids.end() - std::min(ids.size(), kMaxMarkTokens);
  return tokenizer->Decode({begin, ids.end()}, SkipSpecial::kNo).value_or("");
}

}  // namespace

AnswerReading NewAnswerReading(const AnswerMarkup& markup, const Tokenizer* tokenizer) {
  AnswerReading reading;
  if (!markup.reasoning && !markup.calls) return reading;
  reading.markup = std::make_shared<const AnswerMarkup>(markup);
  reading.special_in_reasoning =
      SpecialIn({.reasoning = markup.reasoning, .calls = std::nullopt}, tokenizer);
  reading.special_in_calls =
      SpecialIn({.reasoning = std::nullopt, .calls = markup.calls}, tokenizer);
  return reading;
}

AnswerReader ChoiceReading::ReaderOf(int32_t choice) const {
  ReaderOptions own = options;
  own.id_seed = fmt::format("{}/{}", options.id_seed, choice);
  return AnswerReader(markup, std::move(own));
}

std::shared_ptr<const ChoiceReading> ReadChoices(const AnswerReading& reading,
                                                 const Tokenizer* tokenizer,
                                                 const ReadingWish& wish,
                                                 ReaderOptions::Calls calls,
                                                 v1::GenerateRequest& request) {
  if (reading.markup == nullptr) return nullptr;
  const bool has_calls = wish.has_tools && reading.markup->calls.has_value();
  if (!has_calls && !reading.markup->reasoning) return nullptr;
  const auto show = [&](const std::vector<int32_t>& ids) {
    request.mutable_shown_special_token_ids()->Add(ids.begin(), ids.end());
  };
  show(reading.special_in_reasoning);
  if (has_calls) show(reading.special_in_calls);
  return std::make_shared<const ChoiceReading>(ChoiceReading{
      .markup = reading.markup,
      .options = {
          .calls = has_calls ? calls : ReaderOptions::Calls::kNone,
          .reasoning_open = reading.markup->OpensReasoning(EndOf(request.token_ids(), tokenizer)),
          .id_seed = request.request_id(),
          .string_parameters = wish.string_parameters}});
}

}  // namespace tandem::openai
