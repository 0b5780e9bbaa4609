#include <utility>

#include "base/status.h"
#include "server/openai/chat_call.h"
#include "server/openai/endpoints.h"
#include "server/openai/generation.h"
#include "server/openai/http_answers.h"

namespace tandem::openai {
namespace {

absl::Status ReadChat(const AnswerFormat& format, ChatCall& call) {
  ASSIGN_OR_RETURN(Json body, TakeChatBody(call));
  ASSIGN_OR_RETURN(call.chat, ParseChat(std::move(body)));
  call.style = &format.style(call.chat.answer);
  return absl::OkStatus();
}

}  // namespace

void AnswerChat(const ServiceParts& parts, const AnswerFormat& format,
                std::shared_ptr<HttpExchange> exchange) {
  const auto call = std::make_shared<ChatCall>(std::move(exchange), kOpenAiStyle);
  const absl::Status read = ReadChat(format, *call);
  if (!read.ok()) return call->Refuse(read);
  PreparePrompt(parts, call, [&parts, &format](ChatCall& ready, CallPrompt prompt) {
    std::vector<CallPrompt> prompts;
    prompts.push_back(std::move(prompt));
    Generate(parts, format, ready.chat.answer, ready.exchange, ready.request_id,
             std::move(prompts));
  });
}

}  // namespace tandem::openai
