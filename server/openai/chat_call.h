#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>

#include "server/openai/answer_writer.h"
#include "server/openai/chat_request.h"
#include "server/openai/generate_call.h"
#include "server/openai/service_parts.h"
#include "server/openai/turn.h"

namespace tandem::openai {

// A chat request in preparation, from any of the APIs with messages: all of them render messages by
// the same chat template and submit the prompt to the same router.
struct ChatCall {
  ChatCall(std::shared_ptr<HttpExchange> http, const AnswerStyle& answer_style);

  void Respond(HttpResponse response) { exchange->Respond(std::move(response)); }
  void RespondJson(const Json& json);
  void Refuse(const absl::Status& status) { Respond(style->error(status, request_id)); }

  std::shared_ptr<HttpExchange> exchange;
  const AnswerStyle* style;  // outlives the call
  std::string request_id;    // of the header x-request-id, or a new one
  size_t body_bytes;         // of the HTTP request
  ChatRequest chat;
};

// Parses the body of the HTTP request, and takes request_id from it if it has one. INVALID_ARGUMENT
// unless it is JSON.
absl::StatusOr<Json> TakeChatBody(ChatCall& call);

// Checks the chat, has its messages rendered and tokenized, and gives the prompt to `use`, which
// may run on a thread of the router. What is wrong is answered here.
using UsePrompt = std::function<void(ChatCall& call, CallPrompt prompt)>;
void PreparePrompt(const ServiceParts& parts, std::shared_ptr<ChatCall> call, UsePrompt use);

// Has the router generate for the prompt of `call`, and answers in this format.
void GenerateTurn(const ServiceParts& parts, ChatCall& call, std::unique_ptr<TurnFormat> format,
                  CallPrompt prompt);

}  // namespace tandem::openai
