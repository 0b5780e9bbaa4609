#pragma once

#include <memory>
#include <string>

#include "absl/status/status.h"
#include "model/answer/answer_markup.h"
#include "model/chat/chat_template.h"
#include "server/openai/json_body.h"

namespace tandem::openai {

// What these endpoints need of a model's folder besides its tokenizer.
struct ModelFiles {
  std::unique_ptr<ChatTemplate> chat;  // null: the model has none that can be used
  absl::Status no_chat;                // if `chat` is null: why
  AnswerMarkup markup;                 // how answers to chats mark reasoning and calls
  Json tokenizer_info;                 // what /tokenizer_info answers: an object
};

// A model without a chat template, or with one that this build cannot run, is served all the same:
// chat completions are then refused. A parser of an unknown name is logged, and nothing is then
// searched for. `directory` may be empty for none.
ModelFiles LoadModelFiles(const std::string& directory, const ParserNames& parsers = {});

// What /tokenizer_info answers: the fields of a tokenizer_config.json, with special tokens as their
// texts. Accepts any bytes; returns an empty object if they are no such file.
Json TokenizerInfo(std::string_view config);

}  // namespace tandem::openai
