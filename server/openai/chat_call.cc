#include "server/openai/chat_call.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "base/status.h"
#include "server/openai/generation.h"
#include "server/openai/http_answers.h"

namespace tandem::openai {
namespace {

// Makes the prompt of a chat, whose messages `ids` encodes. Moves the request out of `chat`.
CallPrompt PromptOf(const ServiceParts& parts, ChatRequest& chat, const std::vector<int32_t>& ids) {
  v1::GenerateRequest& request = chat.request;
  int32_t prompt_tokens = static_cast<int32_t>(ids.size());
  if (request.has_truncate_prompt_tokens()) {
    prompt_tokens = std::min(prompt_tokens, request.truncate_prompt_tokens());
  }
  // As long as the context allows, which is what clients of this API expect. A prompt that leaves
  // nothing is refused by the router.
  if (!request.has_max_tokens()) {
    const int32_t context = parts.router.CurrentLimits(request.route()).max_context_tokens;
    request.set_max_tokens(std::max(1, context - prompt_tokens));
  }
  PromptInfo info;
  info.token_ids.assign(ids.end() - prompt_tokens, ids.end());
  request.clear_truncate_prompt_tokens();
  request.mutable_token_ids()->mutable_ids()->Assign(info.token_ids.begin(), info.token_ids.end());
  using Calls = ReaderOptions::Calls;
  auto reading = ReadChoices(parts.reading, parts.tokenizer, chat.reading,
                             chat.answer.stream ? Calls::kStreamed : Calls::kWhole, request);
  return {.request = std::move(request), .info = std::move(info), .reading = std::move(reading)};
}

// Checks the chat, and returns the work that renders and tokenizes its messages.
absl::StatusOr<TokenizeWork> CheckedWork(const ServiceParts& parts, ChatCall& call) {
  ChatRequest& chat = call.chat;
  if (chat.request.request_id().empty()) chat.request.set_request_id(call.request_id);
  ReadHeaders(call.exchange->request(), chat.request);
  const RequestLimits limits = parts.router.CurrentLimits(chat.request.route());
  RETURN_IF_ERROR(ValidateFields(parts, chat.request));
  RETURN_IF_ERROR(CheckChoices(parts, chat.request, 1));
  const Template add = chat.add_special_tokens ? Template::kAdd : Template::kOmit;
  return ChatWork(parts, std::move(chat.input), add, limits, call.body_bytes);
}

}  // namespace

ChatCall::ChatCall(std::shared_ptr<HttpExchange> http, const AnswerStyle& answer_style)
    : exchange(std::move(http)),
      style(&answer_style),
      request_id(RequestIdOf(exchange->request())),
      body_bytes(exchange->request().body.size()) {}

void ChatCall::RespondJson(const Json& json) {
  HttpResponse response = JsonResponse(json);
  AddAnswerHeaders(request_id, response.headers, style->id_header);
  Respond(std::move(response));
}

absl::StatusOr<Json> TakeChatBody(ChatCall& call) {
  ASSIGN_OR_RETURN(Json body, ParseJsonBody(call.exchange->TakeBody()));
  TakeRequestId(body, call.request_id);
  return body;
}

void PreparePrompt(const ServiceParts& parts, std::shared_ptr<ChatCall> call, UsePrompt use) {
  absl::StatusOr<TokenizeWork> work = CheckedWork(parts, *call);
  if (!work.ok()) return call->Refuse(work.status());
  HttpExchange& exchange = *call->exchange;
  parts.router.Tokenize(*std::move(work), WatchClient(exchange),
                        [&parts, call = std::move(call),
                         use = std::move(use)](const absl::StatusOr<std::vector<int32_t>>& ids) {
                          if (!ids.ok()) return call->Refuse(ids.status());
                          use(*call, PromptOf(parts, call->chat, *ids));
                        });
}

void GenerateTurn(const ServiceParts& parts, ChatCall& call, std::unique_ptr<TurnFormat> format,
                  CallPrompt prompt) {
  const TurnDelivery delivery =
      call.chat.answer.stream ? TurnDelivery::kStreamed : TurnDelivery::kWhole;
  std::vector<v1::GenerateRequest> requests;
  requests.push_back(std::move(prompt.request));
  const TurnReading reading = {.reading = std::move(prompt.reading),
                               .include_reasoning = call.chat.answer.include_reasoning,
                               .parallel_tool_calls = call.chat.answer.parallel_tool_calls};
  Generate(parts, std::make_unique<TurnAnswer>(std::move(format), delivery, reading), call.exchange,
           call.request_id, std::move(requests));
}

}  // namespace tandem::openai
