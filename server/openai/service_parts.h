#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "base/clock.h"
#include "model/chat/chat_template.h"
#include "router/event_loop.h"
#include "router/router.h"
#include "server/openai/answer_format.h"
#include "server/openai/answer_reading.h"
#include "server/openai/json_body.h"
#include "server/openai/token_texts.h"

namespace tandem::openai {

// The model that is served, as far as these endpoints say something of it.
struct ModelCard {
  std::string name;
  int64_t created = 0;  // seconds since 1970
  std::vector<int32_t> eos_token_ids;
  Json tokenizer_info;  // what /tokenizer_info answers; null where there is no tokenizer
};

// What the endpoints work with. All that is named here outlives them.
struct ServiceParts {
  Router& router;
  EventLoop& loop;
  const Clock& clock;
  int32_t max_in_flight = 1024;          // the router's limit, in choices of all requests
  const Tokenizer* tokenizer = nullptr;  // null where the model has none
  // Null where the model has no usable chat template; `no_chat` then says why.
  const ChatTemplate* chat = nullptr;
  absl::Status no_chat;
  AnswerReading reading;  // how answers to chats are searched
  ModelCard model;
  std::string version;
};

}  // namespace tandem::openai
