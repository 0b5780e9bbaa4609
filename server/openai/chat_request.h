#pragma once

#include "absl/status/statusor.h"
#include "model/chat/chat_template.h"
#include "server/openai/answer_options.h"
#include "server/openai/answer_reading.h"
#include "server/openai/json_body.h"
#include "tandem/v1/inference.pb.h"

namespace tandem::openai {

// The body of POST /v1/chat/completions.
struct ChatRequest {
  v1::GenerateRequest request;  // without its prompt, which the template makes of `input`
  ChatInput input;
  AnswerOptions answer;
  ReadingWish reading;
  bool add_special_tokens = false;  // besides those that the template writes
};

// Parses the body of a chat completion, and moves the messages and tools out of it. Errors are
// those of ParseCompletion.
absl::StatusOr<ChatRequest> ParseChat(Json body);

// The fields of `body` that a template renders, which POST /tokenize has, too.
absl::StatusOr<ChatInput> TakeChatInput(Json& body);

}  // namespace tandem::openai
