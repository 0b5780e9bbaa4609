#include <utility>

#include "base/status.h"
#include "server/anthropic/endpoints.h"
#include "server/anthropic/messages_format.h"
#include "server/anthropic/messages_request.h"
#include "server/openai/chat_call.h"
#include "server/openai/generation.h"
#include "server/openai/http_answers.h"

namespace tandem::anthropic {
namespace {

using openai::CallPrompt;
using openai::ChatCall;
using openai::ServiceParts;

absl::Status ReadMessages(ChatCall& call, MaxTokens max_tokens) {
  ASSIGN_OR_RETURN(openai::Json body, TakeChatBody(call));
  ASSIGN_OR_RETURN(call.chat, ParseMessages(std::move(body), max_tokens));
  return absl::OkStatus();
}

}  // namespace

void AnswerMessages(const ServiceParts& parts, std::shared_ptr<HttpExchange> exchange) {
  const auto call = std::make_shared<ChatCall>(std::move(exchange), kMessagesStyle);
  const absl::Status read = ReadMessages(*call, MaxTokens::kRequired);
  if (!read.ok()) return call->Refuse(read);
  PreparePrompt(parts, call, [&parts](ChatCall& ready, CallPrompt prompt) {
    auto format = NewMessagesFormat(HeadOf(parts, ready.request_id),
                                    static_cast<int64_t>(prompt.info.token_ids.size()),
                                    ready.chat.answer.return_timing);
    GenerateTurn(parts, ready, std::move(format), std::move(prompt));
  });
}

void AnswerCountTokens(const ServiceParts& parts, std::shared_ptr<HttpExchange> exchange) {
  const auto call = std::make_shared<ChatCall>(std::move(exchange), kMessagesStyle);
  const absl::Status read = ReadMessages(*call, MaxTokens::kUnused);
  if (!read.ok()) return call->Refuse(read);
  PreparePrompt(parts, call, [](ChatCall& ready, const CallPrompt& prompt) {
    openai::Json json;
    json["input_tokens"] = prompt.info.token_ids.size();
    ready.RespondJson(json);
  });
}

std::vector<HttpRoute> Routes(const ServiceParts& parts) {
  return {{"POST", "/v1/messages",
           [&parts](std::shared_ptr<HttpExchange> exchange) {
             AnswerMessages(parts, std::move(exchange));
           }},
          {"POST", "/v1/messages/count_tokens", [&parts](std::shared_ptr<HttpExchange> exchange) {
             AnswerCountTokens(parts, std::move(exchange));
           }}};
}

}  // namespace tandem::anthropic
