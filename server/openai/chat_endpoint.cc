#include <algorithm>
#include <utility>

#include "base/status.h"
#include "server/openai/chat_request.h"
#include "server/openai/endpoints.h"
#include "server/openai/generation.h"
#include "server/openai/http_answers.h"

namespace tandem::openai {
namespace {

// A chat whose messages are being rendered.
struct PendingChat {
  std::shared_ptr<HttpExchange> exchange;
  std::string request_id;
  ChatRequest chat;
};

absl::StatusOr<ChatRequest> ParseChatBody(HttpExchange& exchange, std::string& request_id) {
  ASSIGN_OR_RETURN(Json body, ParseJsonBody(exchange.TakeBody()));
  TakeRequestId(body, request_id);
  ASSIGN_OR_RETURN(ChatRequest chat, ParseChat(std::move(body)));
  if (chat.request.request_id().empty()) chat.request.set_request_id(request_id);
  ReadHeaders(exchange.request(), chat.request);
  return chat;
}

void BeginChat(const ServiceParts& parts, const AnswerFormat& format, PendingChat& pending,
               const std::vector<int32_t>& ids) {
  v1::GenerateRequest& request = pending.chat.request;
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
  std::vector<CallPrompt> prompts;
  prompts.push_back({.request = std::move(request), .info = std::move(info)});
  Generate(parts, format, pending.chat.answer, pending.exchange, pending.request_id,
           std::move(prompts));
}

}  // namespace

void AnswerChat(const ServiceParts& parts, const AnswerFormat& format,
                std::shared_ptr<HttpExchange> exchange) {
  std::string request_id = RequestIdOf(exchange->request());
  const size_t bytes = exchange->request().body.size();
  absl::StatusOr<ChatRequest> chat = ParseChatBody(*exchange, request_id);
  if (!chat.ok()) return exchange->Respond(ErrorResponse(chat.status(), request_id));
  const RequestLimits limits = parts.router.CurrentLimits(chat->request.route());
  // Before the messages are rendered.
  absl::Status valid = ValidateFields(parts, chat->request);
  if (valid.ok()) valid = CheckChoices(parts, chat->request, 1);
  if (!valid.ok()) {
    return exchange->Respond(ErrorResponse(valid, request_id));
  }
  const Template add = chat->add_special_tokens ? Template::kAdd : Template::kOmit;
  absl::StatusOr<TokenizeWork> work = ChatWork(parts, std::move(chat->input), add, limits, bytes);
  if (!work.ok()) return exchange->Respond(ErrorResponse(work.status(), request_id));
  const auto pending =
      std::make_shared<PendingChat>(PendingChat{std::move(exchange), request_id, *std::move(chat)});
  parts.router.Tokenize(
      *std::move(work), WatchClient(*pending->exchange),
      [&parts, &format, pending](const absl::StatusOr<std::vector<int32_t>>& ids) {
        if (ids.ok()) return BeginChat(parts, format, *pending, *ids);
        pending->exchange->Respond(ErrorResponse(ids.status(), pending->request_id));
      });
}

}  // namespace tandem::openai
