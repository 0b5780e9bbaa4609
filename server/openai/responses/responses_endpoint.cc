#include <utility>

#include "base/status.h"
#include "server/openai/chat_call.h"
#include "server/openai/endpoints.h"
#include "server/openai/generation.h"
#include "server/openai/http_answers.h"
#include "server/openai/responses/responses_format.h"
#include "server/openai/responses/responses_request.h"

namespace tandem::openai {
namespace {

// Parses the request into `call`. Returns the fields that the response repeats.
absl::StatusOr<Json> ReadResponses(ChatCall& call) {
  ASSIGN_OR_RETURN(Json body, TakeChatBody(call));
  ASSIGN_OR_RETURN(ResponsesRequest request, ParseResponses(std::move(body)));
  call.chat = std::move(request.chat);
  return std::move(request.echo);
}

}  // namespace

void AnswerResponses(const ServiceParts& parts, std::shared_ptr<HttpExchange> exchange) {
  const auto call = std::make_shared<ChatCall>(std::move(exchange), kResponsesStyle);
  absl::StatusOr<Json> read = ReadResponses(*call);
  if (!read.ok()) return call->Refuse(read.status());
  // Shared, because the router copies its callbacks and the fields may be large.
  const auto echo = std::make_shared<Json>(*std::move(read));
  PreparePrompt(parts, call, [&parts, echo](ChatCall& ready, CallPrompt prompt) {
    auto format = NewResponsesFormat(HeadOf(parts, ready.request_id), std::move(*echo),
                                     ready.chat.answer.return_timing);
    GenerateTurn(parts, ready, std::move(format), std::move(prompt));
  });
}

void AnswerResponsesTokens(const ServiceParts& parts, std::shared_ptr<HttpExchange> exchange) {
  const auto call = std::make_shared<ChatCall>(std::move(exchange), kResponsesStyle);
  const absl::Status read = ReadResponses(*call).status();
  if (!read.ok()) return call->Refuse(read);
  PreparePrompt(parts, call, [](ChatCall& ready, const CallPrompt& prompt) {
    Json json;
    json["object"] = "response.input_tokens";
    json["input_tokens"] = prompt.info.token_ids.size();
    ready.RespondJson(json);
  });
}

void RefuseStoredResponse(const ServiceParts&, std::shared_ptr<HttpExchange> exchange) {
  const ApiError error = {.http_status = 404,
                          .message =
                              "responses are not kept here, so that there is none to ask "
                              "for, cancel or delete: POST /v1/responses has the whole answer",
                          .type = "invalid_request_error",
                          .param = {},
                          .code = "response_not_found",
                          .retry_after = {}};
  exchange->Respond(ErrorResponse(error, ErrorJson(error), RequestIdOf(exchange->request())));
}

}  // namespace tandem::openai
