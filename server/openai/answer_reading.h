#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "model/answer/answer_reader.h"
#include "model/tokenizer/tokenizer.h"
#include "tandem/v1/inference.pb.h"

namespace tandem::openai {

// How the answers of the served model are searched for reasoning and calls. Immutable.
struct AnswerReading {
  std::shared_ptr<const AnswerMarkup> markup;  // null: they are not
  // Marks that are special tokens, which would otherwise not be part of the text.
  std::vector<int32_t> special_in_reasoning;
  std::vector<int32_t> special_in_calls;
};

// `tokenizer` may be null.
AnswerReading NewAnswerReading(const AnswerMarkup& markup, const Tokenizer* tokenizer);

// What a chat says of how its answers are to be read.
struct ReadingWish {
  bool has_tools = false;  // which the model may call
  StringParameters string_parameters = {};
};

// How the choices of one chat are read.
struct ChoiceReading {
  std::shared_ptr<const AnswerMarkup> markup;
  ReaderOptions options;  // the id_seed without the choice

  AnswerReader ReaderOf(int32_t choice) const;
};

// Nothing where there is nothing to search for. Makes the marks visible in the text of `request`, whose
// prompt must be there; `calls` is kStreamed or kWhole.
std::shared_ptr<const ChoiceReading> ReadChoices(const AnswerReading& reading,
                                                 const Tokenizer* tokenizer,
                                                 const ReadingWish& wish,
                                                 ReaderOptions::Calls calls,
                                                 v1::GenerateRequest& request);

}  // namespace tandem::openai
