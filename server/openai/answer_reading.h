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

// How the served model marks reasoning and tool calls in its answers. Immutable.
struct AnswerReading {
  std::shared_ptr<const AnswerMarkup> markup;  // null: answers are not searched
  // Marks that are special tokens, which would otherwise not be part of the text.
  std::vector<int32_t> special_in_reasoning;
  std::vector<int32_t> special_in_calls;
};

// Finds the special tokens among the marks. `tokenizer` may be null.
AnswerReading NewAnswerReading(const AnswerMarkup& markup, const Tokenizer* tokenizer);

// What a chat request says about how its answers are to be searched.
struct ReadingWish {
  bool has_tools = false;  // whether it offers tools that the model may call
  StringParameters string_parameters = {};
};

// How the text of the choices of one chat is searched for reasoning and tool calls.
struct ChoiceReading {
  std::shared_ptr<const AnswerMarkup> markup;
  ReaderOptions options;  // its id_seed does not include the choice yet

  AnswerReader ReaderOf(int32_t choice) const;
};

// Null where there is nothing to search for. Otherwise it also makes `request` keep the marks in
// the text of its output; the prompt of `request` must be set. `calls` is kStreamed or kWhole.
std::shared_ptr<const ChoiceReading> ReadChoices(const AnswerReading& reading,
                                                 const Tokenizer* tokenizer,
                                                 const ReadingWish& wish,
                                                 ReaderOptions::Calls calls,
                                                 v1::GenerateRequest& request);

}  // namespace tandem::openai
