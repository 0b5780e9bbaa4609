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
  std::unique_ptr<ChatTemplate> chat;  // null: there is none that can be used
  absl::Status no_chat;                // then why
  AnswerMarkup markup;                 // of the answers to chats
  Json tokenizer_info;                 // an object
};

// A model without a chat template, or with one that this build cannot run, is served all the same:
// chat completions are then refused. A parser of an unknown name is logged, and nothing is then searched
// for. `directory` may be empty for none.
ModelFiles LoadModelFiles(const std::string& directory, const ParserNames& parsers = {});

// What /tokenizer_info says: fields of a tokenizer_config.json, special tokens as their texts. Accepts
// any bytes; what is no such file has no fields.
Json TokenizerInfo(std::string_view config);

}  // namespace tandem::openai
